"""Pretend GPUs as a test sees and changes them, on this machine or from outside a box."""

import contextlib
import fcntl
import os
import struct
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

GIB: Final = 1 << 30
_FLOCK: Final = "hhqqi4x"
"""``struct flock`` of fcntl(2) on 64-bit Linux."""
_DELAY_AT: Final = 25
_STATE_DECIDES: Final = -2


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """Memory of one GPU that a process holds, or held until a moment ago."""

    path: Path
    pid: int
    """Process ID as this process sees it while the holder lives, afterwards as the holder saw
    itself."""
    gpu: int
    bytes: int
    alive: bool
    died_s: float | None
    """Time when the holder was first seen dead, on the monotonic clock; None: not yet."""
    free_at_s: float | None
    """Time when its bytes are free, on the monotonic clock; None: not while things stay as they
    are."""

    @property
    def own_pid(self) -> int:
        """The holder's pid as it saw itself: in its box."""
        return int(self.path.name.partition(".")[0])

    @property
    def in_use(self) -> bool:
        """Whether its bytes are taken now."""
        return self.free_at_s is None or time.monotonic() < self.free_at_s


class Gpus:
    """The state file and the holds of one pretend driver.

    Args:
        state: the file that the driver reads at every call.
        holds: where processes keep what they hold; a function where that changes with each boot.
    """

    def __init__(self, state: Path, holds: Path | Callable[[], Path] | None = None) -> None:
        self._state = state
        self._holds = holds or state.with_name(f"{state.name}.holds")

    @property
    def directory(self) -> Path:
        """Return the directory of the holds."""
        return self._holds() if callable(self._holds) else self._holds

    def environment(self, library: Path) -> dict[str, str]:
        """Return variables by which processes of this machine see the pretend GPUs."""
        return {"FAKE_NVML_STATE": str(self._state), "LD_LIBRARY_PATH": str(library.parent)}

    # --- what the driver shows ---------------------------------------------------------------

    def state(self) -> dict[str, str]:
        """Every key of the state file, as `driver.c` describes them."""
        with contextlib.suppress(FileNotFoundError):
            lines = self._state.read_text(encoding="ascii").splitlines()
            return {key: value for key, _, value in (line.partition("=") for line in lines)}
        return {}

    def replace(self, state: Mapping[str, object]) -> None:
        """Make this the whole state, from the next call of the driver on."""
        self._state.parent.mkdir(parents=True, exist_ok=True)
        fresh = self._state.with_name(f"{self._state.name}.new")
        fresh.write_text("".join(f"{k}={v}\n" for k, v in state.items()), encoding="ascii")
        fresh.rename(self._state)

    def change(self, changes: Mapping[str, object]) -> None:
        """Set some keys, and remove those that are None."""
        merged = {**self.state(), **changes}
        self.replace({k: v for k, v in merged.items() if v is not None})

    def furnish(self, *, count: int = 2, total_bytes: int = 16 * GIB) -> None:
        """Empty GPUs of one size, as a driver shows them after a boot."""
        self.replace({"count": count, "*.total": total_bytes, "*.reserved": 300 << 20})

    def renew(self) -> None:
        """Furnish them again, free the bytes of the dead, and forget what could not be allocated."""
        self.furnish()
        for hold in self.holds():
            if not hold.alive:
                self.forget(hold)
        (self.directory / "oom").unlink(missing_ok=True)

    def release_after(self, seconds: float | None, *, gpu: int | None = None) -> None:
        """Keep the bytes of dead processes in use for so long from now on; None: for ever."""
        key = "release_ms" if gpu is None else f"{gpu}.release_ms"
        self.change({key: "never" if seconds is None else round(seconds * 1000)})

    def hang(self, seconds: float = 3600.0) -> None:
        """Let every call of the driver hang, until `recover`."""
        self.change({"hang_s": round(seconds), "hang_init_s": round(seconds)})

    def recover(self) -> None:
        """End a hang; calls that hang go on."""
        self.change({"hang_s": None, "hang_init_s": None})

    # --- who holds what ----------------------------------------------------------------------

    def holds(self) -> list[Hold]:
        """Return the memory held now. Seeing a dead holder starts the delay of its release."""
        state = self.state()
        with contextlib.suppress(OSError):  # no hold ever, or the box is going down
            names = [n for n in os.listdir(self.directory) if n[0].isdigit()]  # noqa: PTH208 - often
            found = [self._look(self.directory / n, state) for n in names]
            return [h for h in found if h is not None and h.in_use]
        return []

    def held_bytes(self, gpu: int | None = None) -> int:
        """Bytes in use by living and dead processes, on one GPU or on all."""
        return sum(h.bytes for h in self.holds() if gpu in {None, h.gpu})

    def owners(self) -> list[int]:
        """The living processes that hold memory, each once."""
        return sorted({h.pid for h in self.holds() if h.alive})

    def keep(self, hold: Hold, seconds: float | None) -> None:
        """Let the bytes of one hold stay for so long after its process; None: for ever."""
        delay_ms = -1 if seconds is None else round(seconds * 1000)
        with hold.path.open("r+b") as file:
            os.pwrite(file.fileno(), b"delay=%+019d" % delay_ms, _DELAY_AT)

    def forget(self, hold: Hold) -> None:
        """Free its bytes at once, as a reset of the GPU does."""
        hold.path.unlink(missing_ok=True)

    def out_of_memory(self) -> list[str]:
        """A line for each allocation that did not fit, see `holds.h`."""
        return self._log("oom")

    def released(self) -> list[float]:
        """Return when memory really came back, each time that it did, on the monotonic clock."""
        return [int(line.split()[0]) / 1e6 for line in self._log("released")]

    def _log(self, name: str) -> list[str]:
        with contextlib.suppress(OSError):
            return (self.directory / name).read_text(encoding="ascii").splitlines()
        return []

    def _look(self, path: Path, state: Mapping[str, str]) -> Hold | None:
        """One hold; None: it has gone."""
        try:
            file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            return None
        try:
            words = path.name.split(".")
            query = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
            lock = struct.unpack(_FLOCK, fcntl.fcntl(file, fcntl.F_GETLK, query))
            alive = lock[0] != fcntl.F_UNLCK
            died_us, delay_ms = (0, 0) if alive else _death(file, int(words[1]), state)
            return Hold(
                path=path,
                pid=lock[4] if alive else int(words[0]),
                gpu=int(words[1]),
                bytes=os.fstat(file).st_size,
                alive=alive,
                died_s=None if alive else died_us / 1e6,
                free_at_s=None if alive or delay_ms < 0 else died_us / 1e6 + delay_ms / 1e3,
            )
        finally:
            os.close(file)


def _death(file: int, gpu: int, state: Mapping[str, str]) -> tuple[int, int]:
    """Microseconds of the death, which is now unless somebody saw it before; delay in ms."""
    line = os.pread(file, 64, 0).partition(b"\n")[0].decode("ascii")
    facts = dict(word.split("=") for word in line.split())
    died_us, delay_ms = int(facts["died"]), int(facts["delay"])
    if delay_ms == _STATE_DECIDES:
        delay = state.get(f"{gpu}.release_ms") or state.get("*.release_ms")
        delay = delay or state.get("release_ms", "0")
        delay_ms = -1 if delay == "never" else int(delay)
    if not died_us:
        died_us = round(time.monotonic() * 1e6)
        os.pwrite(file, b"died=%019d" % died_us, 0)
    return died_us, delay_ms
