"""The models of a chaos run, and a box in which they are installed."""

import json
import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from appliance.model.claims import Claim
from tests.pretend import Gpus, gpus_of, install
from tests.system.fleet import ENGINE, PROFILES, Fleet
from tests.system.rig import Box, Image, RigError, work_dir

CLOCK_FILE: Final = "/var/lib/chaos/clock"
"""Nanoseconds to add to the time of day, see ``clock.c``."""
CLOCK_LIBRARY: Final = "/usr/local/lib/chaos/clock.so"
TRAINER: Final = "/usr/local/lib/chaos/trainer.py"
STATE: Final = "/var/lib/appliance"
LEASES: Final = "/run/appliance-leases"
WATCHDOG_S: Final = 8
_HERE: Final = Path(__file__).parent
_PRELOADED: Final = ("appliance-supervisor", "appliance-boot", "appliance-backend-")
_DEADLINES: Final = 'release = "12s"\nstop = "2s"\nno_progress = "6s"\nwarm_up = "4s"\n'


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """One profile of the run. Both big ones fit together, so that two owners are possible."""

    name: str
    port: int
    vram: Mapping[int, float]
    """GiB of its main process, by GPU."""
    workers: int = 0
    """Processes that survive it, each with `worker_vram`."""
    worker_vram: Mapping[int, float] | None = None
    everything: bool = False
    """Whether the profile claims all GPUs, not only those that it uses."""
    options: tuple[str, ...] = ()

    @property
    def claim(self) -> Claim:
        """Return the devices that the profile may own alone."""
        devices = {"gpu-all"} if self.everything else {f"gpu-{i}" for i in self.vram}
        return Claim(devices=frozenset(devices))

    @property
    def need_gib(self) -> float:
        """Over all GPUs and processes."""
        return sum(self.vram.values()) + self.workers * sum((self.worker_vram or {}).values())

    def profile(self) -> str:
        """Return the profile's TOML."""
        words = ["{port}", *self.options, *_vram("--vram", self.vram)]
        words += ["--workers", str(self.workers), *_vram("--worker-vram", self.worker_vram or {})]
        argv = json.dumps(["/usr/bin/python3", "-S", ENGINE, *words])
        gpus = '"all"' if self.everything else json.dumps(sorted(self.vram))
        return (
            f'engine = "command"\nport = {self.port}\ngpus = {gpus}\n'
            f'need = {{ vram = "{self.need_gib}GiB" }}\n'
            f'[command]\nargv = {argv}\nhealth = "/health"\n[deadlines]\n{_DEADLINES}'
        )


def _vram(option: str, gib: Mapping[int, float]) -> list[str]:
    return [word for gpu, size in gib.items() for word in (option, f"{gpu}:{size}")]


MODELS: Final = {
    model.name: model
    for model in (
        Model(
            name="large",
            port=9001,
            everything=True,
            vram={0: 10, 1: 10},
            workers=1,
            worker_vram={0: 2, 1: 2},
            options=("--load", "0.3"),
        ),
        Model(
            name="medium",
            port=9002,
            everything=True,
            vram={0: 5, 1: 5},
            options=("--load", "0.6", "--ignore-term"),
        ),
        Model(name="left", port=9003, vram={0: 7}, options=("--load", "0.2")),
        Model(
            name="right",
            port=9004,
            vram={1: 6},
            workers=1,
            worker_vram={1: 2},
            options=("--delay", "0.3", "--load", "0.2"),
        ),
    )
}
"""Two GPUs of 16 GiB: `left` and `right` may serve together, every other pair may not."""


def compiled(source: str, *flags: str) -> Path:
    """A program of this directory, compiled."""
    target = work_dir() / f"chaos-{os.getpid()}" / Path(source).stem
    target.parent.mkdir(parents=True, exist_ok=True)
    command = [
        "gcc",
        "-O2",
        "-Wall",
        "-Wextra",
        "-Werror",
        *flags,
        "-o",
        str(target),
        str(_HERE / source),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RigError(f"{source} does not compile:\n{done.stderr}")
    return target


def new_box(image: Image, name: str) -> Box:
    """A box, not yet booted, whose state is on a disk that loses what was not synced."""
    return Box(image, name=name, disk=STATE)


def furnish(box: Box, clock: Path) -> tuple[Fleet, Gpus]:
    """Put pretend GPUs, a clock that can be set and the models into a booted box."""
    install(box)
    library = box.root / CLOCK_LIBRARY.lstrip("/")
    library.parent.mkdir(parents=True, exist_ok=True)
    library.write_bytes(clock.read_bytes())
    library.chmod(0o755)
    box.write(CLOCK_FILE, "\0" * 8)
    box.write(TRAINER, (_HERE / "trainer.py").read_text(encoding="utf-8"))
    for prefix in _PRELOADED:
        _drop_in(box, prefix, f"[Service]\nEnvironment=LD_PRELOAD={CLOCK_LIBRARY}\n")
    _drop_in(box, "appliance-supervisor", f"[Service]\nWatchdogSec={WATCHDOG_S}\n", "watchdog")
    fleet = Fleet(box)
    for model in MODELS.values():
        box.write(f"{PROFILES}/{model.name}.toml", model.profile())
    fleet.apply()
    box.run("systemctl daemon-reload; systemctl restart appliance-supervisor; sync")
    return fleet, gpus_of(box)


def _drop_in(box: Box, prefix: str, text: str, name: str = "clock") -> None:
    box.write(f"/etc/systemd/system/{prefix}.service.d/{name}.conf", text)
