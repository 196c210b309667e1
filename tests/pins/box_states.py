"""States of a box: what has been done to it, and with it, when its status is asked for.

A box has two models that exclude each other, one for the CPU, and a small one that shares the GPUs.
Unless a state says otherwise aeon is committed and serves.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from tests.fakes.profiles import applied, catalogue
from tests.pins.appliance_code import (
    FOREVER,
    ActiveState,
    Applied,
    DeviceMemory,
    EngineLoad,
    Estimate,
    Finished,
    Goal,
    GpuMemory,
    GpuState,
    GroupMemory,
    Holder,
    Kind,
    Mark,
    Need,
    ObservedPeak,
    ObservedUnit,
    Operation,
    Outcome,
    Phase,
    Quality,
    Request,
    Supervised,
    unit_of,
)

GIB: Final = 1 << 30
BASE: Final = "serving"
_STEP_S: Final = 0.25
_TURNS: Final = 40
"""Of the event loop, until everybody waits: for time, or for something that a state withholds."""


@dataclass(slots=True)
class Scene:
    """A box that a state arranges, and a directory for its files."""

    box: Supervised
    root: Path
    is_slow: bool = False
    """Something does not answer within the time that a status waits for it."""

    def give(self, name: str, unit: ObservedUnit) -> None:
        """Let systemd say this of a profile's unit."""
        self.box.outside.systemd.slots[name].unit = unit

    async def ask(self, kind: Kind, *names: str, **more: object) -> None:
        """Begin an operation."""
        await self.box.supervisor.submit(Request(kind=kind, names=names, by="ana", **more))  # type: ignore[arg-type]
        await settle()

    async def drive(self, seconds: float) -> None:
        """Let time pass."""
        units = self.box.outside.units
        end_s = units.systemd.now_s + seconds
        while units.systemd.now_s < end_s:
            units.drive(min(units.systemd.now_s + _STEP_S, end_s))
            await settle()

    async def until(self, *phases: Phase) -> None:
        """Let time pass until the operation is in one of `phases`; none: until it has ended."""
        for _ in range(4000):
            running = self.box.supervisor.current()
            phase = None if running is None else running.transaction.operation.phase
            if (phase is None and not phases) or phase in phases:
                return
            await self.drive(_STEP_S)
        raise AssertionError(f"never in {phases}")


async def settle() -> None:
    """Let everybody go on until they wait."""
    for _ in range(_TURNS):
        await asyncio.sleep(0)


Arrange = Callable[[Scene], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class State:
    """How a box comes into a state."""

    arrange: Arrange
    committed: tuple[str, ...]


STATES: Final[dict[str, State]] = {}


def state(name: str, *committed: str) -> Callable[[Arrange], Arrange]:
    """Add a state of this name; `committed`: other profiles than aeon."""

    def add(arrange: Arrange) -> Arrange:
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


def _holder(pid: int, gib: float | None, comm: str, user: str, unit: str = "") -> Holder:
    held = None if gib is None else int(gib * GIB)
    return Holder(pid=pid, held_bytes=held, comm=comm, user=user, unit=unit)


def _device(index: int, *holders: Holder, used_gib: float = 0, **more: object) -> DeviceMemory:
    total, used = 16 * GIB, int(used_gib * GIB)
    device = DeviceMemory(
        index=index,
        uuid=f"GPU-{index}",
        name="RTX 5060 Ti",
        total_bytes=total,
        free_bytes=total - used,
        used_bytes=used,
        holders=holders,
    )
    return replace(device, **more)  # type: ignore[arg-type]


def _gpus(*devices: DeviceMemory, state_: GpuState = GpuState.OK, reason: str = "") -> GpuMemory:
    return GpuMemory(devices=devices, state=state_, reason=reason or None)


def _read_gpus(scene: Scene, memory: GpuMemory) -> None:
    scene.box.outside.host.gpu_memory = memory


# --- what serves --------------------------------------------------------------------------


async def _nothing(_scene: Scene) -> None:
    return


state(BASE)(_nothing)
state("serving two", "aeon", "mini")(_nothing)


@state("nothing applied")
async def _(scene: Scene) -> None:
    scene.box.profiles.applied = {}


@state("nothing committed")
async def _(scene: Scene) -> None:
    await scene.ask(Kind.STOP)
    await scene.until()
    scene.box.outside.commitment.names = ()
    scene.box.outside.store.ended.clear()


@state("serving beside a shared one")
async def _(scene: Scene) -> None:
    await scene.ask(Kind.START, "embedder")
    await scene.until()
    await scene.drive(100)


@state("started by hand")
async def _(scene: Scene) -> None:
    scene.box.outside.systemd.start("genesis", by_hand=True)
    await scene.drive(5)


@state("loading by hand")
async def _(scene: Scene) -> None:
    scene.box.outside.systemd.start("genesis", by_hand=True)
    await scene.drive(1)


@state("stopped by hand")
async def _(scene: Scene) -> None:
    scene.box.outside.systemd.stop("aeon")
    await scene.drive(5)


@state("stopped by hand, long ago")
async def _(scene: Scene) -> None:
    scene.give("aeon", ObservedUnit(since_unix_s=900.0, since_s=900.0, stopped_s=950.0))


@state("stopping")
async def _(scene: Scene) -> None:
    scene.box.outside.systemd.stop("aeon")


@state("stopped by the appliance")
async def _(scene: Scene) -> None:
    await scene.ask(Kind.STOP, "aeon")
    await scene.until()
    await scene.drive(30)


@state("committed, not applied")
async def _(scene: Scene) -> None:
    scene.box.outside.commitment.names = ("gone", "mini")


@state("without its unit")
async def _(scene: Scene) -> None:
    scene.give("aeon", ObservedUnit(loaded=False))


@state("never started")
async def _(scene: Scene) -> None:
    scene.give("aeon", ObservedUnit())


@state("profile edited since")
async def _(scene: Scene) -> None:
    (scene.root / "aeon.toml").write_text("# another text")


@state("unit edited since")
async def _(scene: Scene) -> None:
    unit = scene.box.outside.systemd.slots["aeon"].unit
    scene.give("aeon", replace(unit, needs_reload=True))


@state("marks")
async def _(scene: Scene) -> None:
    await scene.box.supervisor.mark("mini", Mark.RETIRED, by="ana")
    await scene.box.supervisor.mark("aeon", Mark.LIVE, by="ana")


@state("long since")
async def _(scene: Scene) -> None:
    scene.box.outside.systemd.now_s += 3 * 86_400 + 4000


# --- what ended badly ---------------------------------------------------------------------


@state("crashed")
async def _(scene: Scene) -> None:
    scene.box.outside.systemd.crash("aeon", status=3)


@state("ended by itself")
async def _(scene: Scene) -> None:
    scene.box.outside.systemd.crash("aeon", status=0)


@state("waits for its next start")
async def _(scene: Scene) -> None:
    result = ObservedUnit(active=ActiveState.ACTIVATING, sub="auto-restart", result="oom-kill")
    scene.give("aeon", result)


def _failed(result: str, **more: int) -> ObservedUnit:
    return ObservedUnit(active=ActiveState.FAILED, sub="failed", result=result, **more)  # type: ignore[arg-type]


for _result in (
    *("start-limit-hit", "signal", "core-dump", "timeout", "watchdog", "resources"),
    *("exit-code", "exec-condition", "oom-kill"),
):

    async def _fail(scene: Scene, result: str = _result) -> None:
        scene.give("aeon", _failed(result, exit_status=7))

    state(f"failed, {_result}")(_fail)


@state("refused by the gate")
async def _(scene: Scene) -> None:
    outside = scene.box.outside
    outside.systemd.behaviour["aeon"].refusal = "GPU 0 has 3.0 GiB free, needs 14.5 GiB"
    outside.systemd.stop("aeon")
    await scene.drive(5)
    outside.systemd.start("aeon", by_hand=True)
    await scene.drive(2)


@state("evicted in vain")
async def _(scene: Scene) -> None:
    outside = scene.box.outside
    outside.systemd.behaviour["genesis"].refusal = "GPU 0 has 3.0 GiB free, needs 14.5 GiB"
    outside.systemd.start("genesis", by_hand=True)
    await scene.drive(3)


@state("evicted, not seen yet")
async def _(scene: Scene) -> None:
    scene.give("aeon", ObservedUnit(since_unix_s=900.0, since_s=900.0, stopped_s=950.0))
    scene.give("genesis", replace(_failed("signal"), changed_s=960.0, stopped_s=960.0))


@state("repaired")
async def _(scene: Scene) -> None:
    scene.box.outside.systemd.give_up("aeon")
    scene.box.outside.units.version += 1
    await scene.drive(60)


# --- a switch -----------------------------------------------------------------------------


@state("switching, preflight")
async def _(scene: Scene) -> None:
    scene.box.outside.host.files_answer.clear()
    await scene.ask(Kind.SWITCH, "genesis")


@state("switching, drain")
async def _(scene: Scene) -> None:
    scene.box.outside.gateway.drains.clear()
    await scene.ask(Kind.SWITCH, "genesis", drain_s=20.0)


@state("switching, stop")
async def _(scene: Scene) -> None:
    scene.box.outside.systemd.behaviour["aeon"].stop_s = 30.0
    await scene.ask(Kind.SWITCH, "genesis")
    await scene.drive(4)


@state("switching, release")
async def _(scene: Scene) -> None:
    scene.box.outside.systemd.behaviour["aeon"].stop_s = 0.0
    await scene.ask(Kind.SWITCH, "genesis")
    await scene.until(Phase.RELEASE, Phase.START, Phase.LOAD)
    waits = ObservedUnit(active=ActiveState.ACTIVATING, sub="condition", has_job=True)
    scene.give("genesis", replace(waits, status_text="waiting for 2.1 GiB on GPU 0"))
    scene.box.outside.systemd.slots["genesis"].due_s = float("inf")
    await scene.drive(3)


@state("switching, load")
async def _(scene: Scene) -> None:
    scene.box.outside.systemd.behaviour["genesis"].load_s = 60.0
    await scene.ask(Kind.SWITCH, "genesis")
    await scene.drive(20)


@state("switching, warm-up")
async def _(scene: Scene) -> None:
    scene.box.outside.backend.hangs.add("genesis")
    await scene.ask(Kind.SWITCH, "genesis")
    await scene.until(Phase.WARM_UP)


@state("switching, commit")
async def _(scene: Scene) -> None:
    scene.box.outside.commitment.takes.clear()
    await scene.ask(Kind.SWITCH, "genesis")
    await scene.until(Phase.COMMIT)


@state("switching, rolling back")
async def _(scene: Scene) -> None:
    scene.box.outside.backend.cold.add("genesis")
    scene.box.outside.systemd.behaviour["aeon"].load_s = 30.0
    await scene.ask(Kind.SWITCH, "genesis")
    await scene.drive(12)


@state("switching without a gateway")
async def _(scene: Scene) -> None:
    scene.box.outside.gateway.away = True
    scene.box.outside.systemd.behaviour["genesis"].load_s = 60.0
    await scene.ask(Kind.SWITCH, "genesis")
    await scene.drive(5)


@state("switched")
async def _(scene: Scene) -> None:
    await scene.ask(Kind.SWITCH, "genesis")
    await scene.until()
    await scene.drive(90)


@state("rolled back")
async def _(scene: Scene) -> None:
    scene.box.outside.backend.cold.add("genesis")
    await scene.ask(Kind.SWITCH, "genesis")
    await scene.until()


@state("rolled back in vain")
async def _(scene: Scene) -> None:
    scene.box.outside.backend.cold |= {"genesis", "aeon"}
    await scene.ask(Kind.SWITCH, "genesis")
    await scene.until()


@state("disk full")
async def _(scene: Scene) -> None:
    scene.box.outside.commitment.full = True
    await scene.ask(Kind.SWITCH, "genesis")
    await scene.until()


@state("disk fails at the commit")
async def _(scene: Scene) -> None:
    scene.box.outside.commitment.failing = True
    await scene.ask(Kind.SWITCH, "genesis")
    await scene.until()


@state("switch, undone by hand")
async def _(scene: Scene) -> None:
    scene.box.outside.systemd.behaviour["genesis"].load_s = 60.0
    await scene.ask(Kind.SWITCH, "genesis")
    await scene.drive(5)
    scene.box.outside.systemd.start("aeon", by_hand=True)
    await scene.until()


def _operation(scene: Scene, kind: Kind, *names: str, **more: object) -> Operation:
    operation = Operation(
        id=1,
        kind=kind,
        target=names,
        goal=Goal(start=names),
        boot_id="boot-0",
        requested_by="ana",
        began_unix_s=scene.box.outside.clock.unix_s() - 50,
    )
    return replace(operation, **more)  # type: ignore[arg-type]


@state("cut by a reboot")
async def _(scene: Scene) -> None:
    scene.box.outside.store.ended.append(
        Finished(
            operation=_operation(scene, Kind.SWITCH, "genesis", phase=Phase.LOAD),
            outcome=Outcome.INTERRUPTED,
            message="cut in load by a reboot",
            finished_unix_s=scene.box.outside.clock.unix_s() - 9,
        )
    )


@state("restarted in vain")
async def _(scene: Scene) -> None:
    scene.box.outside.backend.cold.add("aeon")
    await scene.ask(Kind.RESTART, "aeon")
    await scene.until()


# --- holds and commands -------------------------------------------------------------------


@state("held")
async def _(scene: Scene) -> None:
    await scene.ask(Kind.HOLD, hold_until=FOREVER)
    await scene.until()


@state("held for a time")
async def _(scene: Scene) -> None:
    await scene.ask(Kind.HOLD, hold_until=scene.box.outside.clock.unix_s() + 7200)
    await scene.until()
    await scene.drive(60)


@state("held by hand")
async def _(scene: Scene) -> None:
    scene.box.outside.systemd.start_hold()
    await scene.drive(2)


@state("hold over")
async def _(scene: Scene) -> None:
    await scene.ask(Kind.HOLD, hold_until=scene.box.outside.clock.unix_s() + 30)
    await scene.until()
    await scene.drive(120)


_CLAIM: Final = "all"


async def _begin_run(scene: Scene) -> None:
    claim = scene.box.outside.systemd.command.claim
    await scene.ask(Kind.RUN, command="python3", claim=claim, uid=1000)


@state("a command waits")
async def _(scene: Scene) -> None:
    scene.box.outside.systemd.command.wait_s = 60
    await _begin_run(scene)
    await scene.drive(10)


@state("a command runs")
async def _(scene: Scene) -> None:
    scene.box.outside.systemd.command.run_s = 900
    await _begin_run(scene)
    await scene.drive(100)


@state("a command ends")
async def _(scene: Scene) -> None:
    scene.box.outside.systemd.command.stop_s = 60
    await _begin_run(scene)
    await scene.drive(30)


@state("a command has run")
async def _(scene: Scene) -> None:
    await _begin_run(scene)
    await scene.until()


@state("a command was not begun")
async def _(scene: Scene) -> None:
    scene.box.outside.systemd.command.problem = "the memory has not come back"
    await _begin_run(scene)
    await scene.until()


@state("a command of no operation")
async def _(scene: Scene) -> None:
    scene.box.outside.systemd.command.unit = ObservedUnit(
        active=ActiveState.ACTIVE, sub="running", main_pid=77
    )


# --- memory -------------------------------------------------------------------------------


def _owners(scene: Scene) -> tuple[Holder, Holder]:
    del scene
    unit = unit_of("aeon")
    return (
        _holder(41, 13.5, "vllm", "apl-aeon", unit),
        _holder(42, 13.25, "vllm", "apl-aeon", unit),
    )


@state("GPUs")
async def _(scene: Scene) -> None:
    one, two = _owners(scene)
    _read_gpus(scene, _gpus(_device(0, one, used_gib=13.75), _device(1, two, used_gib=13.5)))
    scene.box.outside.host.groups["aeon"] = GroupMemory(
        resident_bytes=6 * GIB, locked_bytes=GIB, pinned_bytes=5 * GIB, pids=(41, 42)
    )
    await scene.drive(30)


@state("peaks")
async def _(scene: Scene) -> None:
    _read_gpus(scene, _gpus(_device(0), _device(1)))
    kept = scene.box.outside.peaks.kept
    kept["aeon"] = ObservedPeak(
        fingerprint="fingerprint of aeon",
        gpus={"GPU-0": 14 * GIB, "GPU-1": 13 * GIB},
        ram_bytes=5 * GIB,
        seen_unix_s=900.0,
    )
    kept["mini"] = ObservedPeak(fingerprint="of another", ram_bytes=GIB, seen_unix_s=900.0)


@state("GPUs held by others")
async def _(scene: Scene) -> None:
    one, two = _owners(scene)
    others = [_holder(100 + n, n / 4, f"p{n}", "ana", "session-3.scope") for n in range(1, 6)]
    gone = _holder(99, None, "", "")
    _read_gpus(
        scene,
        _gpus(_device(0, one, *others, used_gib=15.9), _device(1, two, gone, used_gib=15.5)),
    )


@state("GPUs, one lost")
async def _(scene: Scene) -> None:
    lost = replace(
        _device(1), state=GpuState.LOST, problem="fell off the bus", free_bytes=0, total_bytes=0
    )
    reason = "GPU 1 fell off the bus: reboot"
    _read_gpus(scene, _gpus(_device(0), lost, state_=GpuState.LOST, reason=reason))


for _state, _reason in (
    (GpuState.HUNG, "the driver has not answered for 20 s"),
    (GpuState.MISMATCH, "driver and library differ: reboot"),
    (GpuState.NO_DRIVER, "the driver is not loaded"),
    (GpuState.NO_LIBRARY, "no libnvidia-ml.so.1"),
    (GpuState.DEVICE, "unknown error"),
    (GpuState.READER, "the reader ended with status 1"),
):

    async def _unreadable(scene: Scene, of: GpuState = _state, reason: str = _reason) -> None:
        _read_gpus(scene, _gpus(state_=of, reason=reason))

    state(f"GPUs, {_state}")(_unreadable)


@state("GPUs of other kinds")
async def _(scene: Scene) -> None:
    opaque = replace(_device(0, used_gib=4), quality=Quality.OPAQUE, problem="MIG is on")
    unified = replace(_device(1, used_gib=4), quality=Quality.UNIFIED, holders=None)
    _read_gpus(scene, _gpus(opaque, unified))


@state("GPUs as they were")
async def _(scene: Scene) -> None:
    _read_gpus(scene, _gpus(_device(0), _device(1)))
    await scene.box.document()
    scene.box.outside.host.driver_answers.clear()
    scene.box.outside.systemd.now_s += 100
    scene.is_slow = True


# --- the gateway, engines and files -------------------------------------------------------

_FIGURES: Final = {
    "requests": 120,
    "in_flight": 3,
    "queued": 2,
    "quiet_s": 1.5,
    "errors": 4,
    "gone": 1,
    "retried": 1,
    "bytes": 123_456,
    "output_tokens": 20_000,
    "tok_s": 41.25,
    "wait_ms": {"p50": 1.0, "p99": 20.5},
    "ttft_ms": {"p50": 180.0, "p99": 900.0},
    "gap_ms": {"p50": 24.0, "p99": 60.0},
}


@state("traffic")
async def _(scene: Scene) -> None:
    scene.box.outside.gateway.figures = {"aeon": dict(_FIGURES), "gone": {"requests": 1}}
    scene.box.outside.backend.loads["aeon"] = EngineLoad(running=3, queued=2, kv_cache=0.25)


@state("gateway away")
async def _(scene: Scene) -> None:
    scene.box.outside.gateway.away = True


@state("stalled")
async def _(scene: Scene) -> None:
    outside = scene.box.outside
    outside.gateway.figures = {"aeon": {"requests": 5, "in_flight": 3, "quiet_s": 130.0}}
    for _look in range(14):
        outside.units.used_s["aeon"] = 7.0
        await scene.box.stalls.turn()
        await scene.drive(10)


@state("files damaged")
async def _(scene: Scene) -> None:
    scene.box.profiles.damage = "manifest.json is damaged: sudo appliance apply; its copy is used"
    scene.box.gateway_damage = "gateway.json is damaged: sudo appliance apply; its copy is used"
