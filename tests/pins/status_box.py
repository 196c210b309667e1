"""Box in virtual time for the pins of the status, and the register of its states.

The box has two models that exclude each other, one for the CPU, and a small one that shares the GPUs.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from tests.fakes.profiles import FakeProfiles, applied, catalogue
from tests.fakes.supervisor_ports import FakePorts
from tests.pins.appliance_code import (
    Applied,
    Estimate,
    Kind,
    Mark,
    Need,
    ObservedUnit,
    OperationRequest,
    Phase,
    Supervised,
    Supervisor,
    phase_of,
)
from tests.pins.frozen_time import settle

GIB: Final = 1 << 30
BASE: Final = "serving"
_STEP_S: Final = 0.25
_MOST_STEPS: Final = 4000
"""Before an operation that does not come to an awaited phase is given up."""


@dataclass(slots=True)
class StatusBox:
    """A supervised box, changed by a state before its status is asked for."""

    supervised: Supervised
    root: Path
    """Directory for the box's files."""
    is_slow: bool = False
    """A reading is not answered within the time that the status waits for it."""

    @property
    def fakes(self) -> FakePorts:
        """Units, files, GPUs and gateway of the box."""
        return self.supervised.fakes

    @property
    def supervisor(self) -> Supervisor:
        """Supervisor of the box."""
        return self.supervised.supervisor

    @property
    def profiles(self) -> FakeProfiles:
        """Applied profiles, as the supervisor reads them."""
        return self.supervised.profiles

    def give(self, name: str, unit: ObservedUnit) -> None:
        """Make systemd report `unit` for the profile `name`."""
        self.fakes.systemd.report(name, unit)

    async def ask(self, kind: Kind, *names: str, **more: object) -> None:
        """Begin an operation."""
        await self.supervisor.submit(OperationRequest(kind=kind, names=names, **more))  # type: ignore[arg-type]
        await settle()

    async def drive(self, seconds: float) -> None:
        """Let virtual time pass."""
        units = self.fakes.units
        end_s = units.systemd.now_s + seconds
        while units.systemd.now_s < end_s:
            units.drive(min(units.systemd.now_s + _STEP_S, end_s))
            await settle()

    async def until(self, *phases: Phase) -> None:
        """Let virtual time pass until the operation is in one of `phases`; none given: until its end."""
        for _ in range(_MOST_STEPS):
            phase = phase_of(self.supervisor)
            if (phase is None and not phases) or phase in phases:
                return
            await self.drive(_STEP_S)
        raise AssertionError(f"never in {phases}")


Arrange = Callable[[StatusBox], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class State:
    """Recipe for one state."""

    arrange: Arrange
    committed: tuple[str, ...]


STATES: Final[dict[str, State]] = {}


def state(name: str, *committed: str) -> Callable[[Arrange], Arrange]:
    """Register a state under `name`; `committed`: the committed profiles, if not aeon alone."""

    def add(arrange: Arrange) -> Arrange:
        assert name not in STATES
        STATES[name] = State(arrange, committed or ("aeon",))
        return arrange

    return add


def catalogue_in(root: Path) -> Mapping[str, Applied]:
    """The applied profiles of a box whose files are below `root`."""
    profiles = (
        replace(
            applied(
                "aeon", "gpu-all", port=8023, need=Need(vram_bytes=28 * GIB, ram_bytes=4 * GIB)
            ),
            served=("aeon", "claude-*"),
            engine="vllm",
        ),
        replace(
            applied("genesis", "gpu-all", port=8022, mark=Mark.LIVE),
            vram_fraction=0.9,
            engine="vllm",
        ),
        applied("mini", "cpu", port=8081, need=Need(ram_bytes=19 * GIB)),
        replace(
            applied("embedder", port=8082),
            gpus=(0,),
            estimate=Estimate(vram_bytes=GIB, least_vram_bytes=GIB // 2, ram_bytes=GIB // 4),
        ),
    )
    return catalogue(*(replace(p, source_path=f"{root}/{p.name}.toml") for p in profiles))
