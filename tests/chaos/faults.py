"""Faults, one function each, with their frequencies.

A fault returns what it did, or None when there was nothing to do it to.
"""

import contextlib
import signal
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from tests.chaos import processes
from tests.chaos.observer import backend_group
from tests.chaos.scenario import MODELS, TRAINER, WATCHDOG_S
from tests.chaos.world import Trainer, World
from tests.pretend import GIB

Fault = Callable[[World], str | None]

_LURK_S: Final = 2.5
_LURK_PAUSE_S: Final = 0.002
_SHORT_LIVED: Final = frozenset({"gate", "wrapper", "sampler"})
_DAY_S: Final = 86400.0


def unit(name: str) -> str:
    """A model's unit."""
    return f"appliance-backend-{name}.service"


def _victim(world: World, kind: str) -> processes.Process | None:
    """A process of that kind; for what lives shortly, a switch is begun and waited for it."""
    found = processes.of_kind(world.box, kind)
    if not found and kind in _SHORT_LIVED:
        idle = [n for n in sorted(MODELS) if not backend_group(world.box, n).exists()]
        if idle:
            world.clients.ask(world.boots, "switch", world.rng.choice(idle))
        end_s = time.monotonic() + _LURK_S
        while not found and time.monotonic() < end_s:
            world.pause(_LURK_PAUSE_S)
            found = processes.of_kind(world.box, kind)
        if found:
            world.pause(world.rng.uniform(0, 0.04))
    return world.rng.choice(found) if found else None


def kill(kind: str, world: World) -> str | None:
    """SIGKILL."""
    victim = _victim(world, kind)
    if victim is None or not world.signal(victim.pid, signal.SIGKILL):
        return None
    return f"kill -9 {kind} of {victim.group} (pid {victim.pid})"


def stop(kind: str, world: World, *, seconds: tuple[float, float] = (0.2, 5.0)) -> str | None:
    """SIGSTOP, and SIGCONT after a while."""
    victim = _victim(world, kind)
    if victim is None or not world.signal(victim.pid, signal.SIGSTOP):
        return None
    pause_s = world.rng.uniform(*seconds)
    pid = victim.pid
    world.later(pause_s, partial(world.resume, pid))
    return f"SIGSTOP {kind} of {victim.group} (pid {pid}) for {pause_s:.1f} s"


def power_cut(world: World) -> str:
    """The plug."""
    world.power_cut()
    return "power cut"


def reboot(world: World) -> str:
    """An orderly reboot."""
    world.reboot()
    return "reboot"


def rival(world: World, *, ignoring: bool = False) -> str | None:
    """Start another model with systemctl, as a person would."""
    idle = [n for n in sorted(MODELS) if n not in world.observer.owners]
    if not idle:
        return None
    name = world.rng.choice(idle)
    how = ["--job-mode=ignore-dependencies"] if ignoring else []
    world.run("systemctl", "start", "--no-block", *how, unit(name))
    world.may_be_evicted = True
    return f"systemctl start {' '.join([*how, name])}"


def rivals_at_once(world: World) -> str:
    """Kill every serving model, and start all profiles at once, past all dependencies."""
    for process in processes.of_kind(world.box, "backend"):
        world.signal(process.pid, signal.SIGKILL)
    names = sorted(MODELS)
    world.rng.shuffle(names)
    jobs = "--job-mode=ignore-dependencies"
    world.run("systemctl", "start", "--no-block", jobs, *(unit(n) for n in names))
    world.may_be_evicted = True
    return f"kill -9 the owner, systemctl start {jobs} {' '.join(names)}"


def foreign(world: World, *, leaves: bool) -> str | None:
    """A program that is none of ours takes memory of a GPU."""
    gpu = world.rng.randrange(2)
    gib = world.rng.randint(1, 10)
    free = 15 * GIB - world.gpus.held_bytes(gpu)
    size_bytes = min(gib * GIB, free - GIB)
    if size_bytes < GIB:
        return None
    trainer = _trainer(world, gpu, size_bytes)
    if trainer is None:
        return None
    text = f"pid {trainer.pid} takes {size_bytes / GIB:.1f} GiB of GPU {gpu}"
    if not leaves:
        return f"{text} and stays"
    seconds = world.rng.uniform(0.5, 8.0)
    world.later(seconds, partial(dismiss, world, trainer))
    return f"{text} for {seconds:.1f} s"


def _trainer(world: World, gpu: int, size_bytes: int) -> Trainer | None:
    """Memory is taken only while nobody of ours is between its gate's look and its own memory.

    Against that nothing helps, so it would show nothing.
    """
    service = ("systemd-run", "--quiet", "--pipe", "--collect", "--wait")
    program = ("/usr/bin/python3", "-S", TRAINER, str(gpu), str(size_bytes))
    stream = world.box.stream(*service, *program)
    pipe = stream.process.stdin
    lines = stream.lines()
    with contextlib.suppress(ValueError, OSError):
        pid = int(next(lines, ""))
        world.foreign_pids.add(pid)
        if pipe is not None and _is_quiet(world):
            pipe.write("go\n")
            pipe.flush()
            if next(lines, "") == "took":
                trainer = Trainer(stream=stream, pid=pid)
                world.trainers.append(trainer)
                return trainer
    stream.process.kill()
    stream.close()
    return None


def _is_quiet(world: World) -> bool:
    """Whether every backend that has a control group holds all its memory; waits a moment."""
    for _ in range(60):
        if all(_is_loaded(world, name) for name in MODELS):
            return True
        world.pause(0.05)
    return False


def _is_loaded(world: World, name: str) -> bool:
    if not backend_group(world.box, name).exists():
        return True
    mains = [p for p in processes.of_kind(world.box, "backend") if p.group == name]
    held = sum(h.bytes for h in world.gpus.holds() if h.pid in {p.pid for p in mains})
    return held >= sum(MODELS[name].vram.values()) * GIB


def dismiss(world: World, trainer: Trainer) -> None:
    """End a foreign program."""
    if trainer in world.trainers:
        world.trainers.remove(trainer)
        trainer.stream.close()


def release_late(world: World) -> str:
    """Delay the release of a dead process's memory from now on, for a while."""
    seconds = world.rng.uniform(0.0, 10.0)
    world.gpus.release_after(seconds)
    world.memory_kept = False
    return f"memory comes back after {seconds:.1f} s"


def release_never(world: World) -> str:
    """Keep the memory of dead processes in use from now on."""
    world.gpus.release_after(None)
    world.memory_kept = True
    return "memory does not come back"


def disk_full(world: World) -> str:
    """The disk of the state directory is full for a while."""
    world.fill_disk()
    seconds = world.rng.uniform(0.5, 8.0)
    world.later(seconds, world.empty_disk)
    return f"disk full for {seconds:.1f} s"


def clock_jump(world: World) -> str:
    """The time of day jumps."""
    seconds = world.rng.choice((1, -1)) * 10 ** world.rng.uniform(0, 6)
    world.set_clock(seconds)
    return f"clock set {seconds:+.0f} s from the machine's"


FAULTS: Final[Mapping[str, tuple[float, Fault]]] = {
    **{
        f"kill {kind}": (weight, partial(kill, kind))
        for kind, weight in {
            "supervisor": 3.0,
            "backend": 3.0,
            "worker": 1.5,
            "gate": 3.0,
            "wrapper": 2.0,
            "sampler": 1.5,
        }.items()
    },
    **{
        f"stop {kind}": (weight, partial(stop, kind))
        for kind, weight in {
            "supervisor": 1.0,
            "backend": 1.0,
            "worker": 0.5,
            "gate": 1.5,
            "wrapper": 1.0,
            "sampler": 0.7,
        }.items()
    },
    "stop supervisor for long": (
        0.3,
        partial(stop, "supervisor", seconds=(WATCHDOG_S + 1.0, WATCHDOG_S + 3.0)),
    ),
    "power cut": (1.5, power_cut),
    "reboot": (0.7, reboot),
    "rival": (2.0, rival),
    "rival past dependencies": (2.0, partial(rival, ignoring=True)),
    "rivals at once": (2.0, rivals_at_once),
    "foreign for a while": (1.5, partial(foreign, leaves=True)),
    "foreign": (0.7, partial(foreign, leaves=False)),
    "release late": (3.0, release_late),
    "release never": (0.5, release_never),
    "disk full": (1.2, disk_full),
    "clock": (1.2, clock_jump),
}
"""Weight and function by name."""


def strike(world: World) -> tuple[str, str]:
    """One fault, drawn until one finds its target: its name and what it did."""
    names = list(FAULTS)
    weights = [FAULTS[name][0] for name in names]
    while True:
        name = world.rng.choices(names, weights)[0]
        if done := FAULTS[name][1](world):
            return name, done
        world.pause(0.05)
