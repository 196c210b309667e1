"""Processes of a box that can be killed, as this machine sees them."""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from appliance.model.paths import BACKEND_SCRIPT, GATE_SCRIPT, PREFIX
from tests.chaos.observer import backend_group, group_of
from tests.chaos.scenario import MODELS
from tests.system.rig import Box

SUPERVISOR: Final = "appliance-supervisor.service"


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """One process, by its pid on this machine."""

    pid: int
    group: str
    """The model whose backend it belongs to, or ``supervisor``."""
    words: tuple[str, ...]
    parent: int

    def runs(self, program: str) -> bool:
        """Whether it is `python -m` of that module, or that start script."""
        return program in self.words


def in_group(path: Path, group: str) -> Iterator[Process]:
    """The processes in one control group."""
    with contextlib.suppress(OSError):
        for pid in (path / "cgroup.procs").read_text().split():
            with contextlib.suppress(OSError, ValueError, IndexError):
                words = Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
                stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
                yield Process(pid=int(pid), group=group, words=tuple(words), parent=int(stat[1]))


def everything(box: Box) -> list[Process]:
    """The supervisor, all backends, and what is about to become one."""
    found = list(in_group(group_of(box, SUPERVISOR), "supervisor"))
    for name in MODELS:
        found += in_group(backend_group(box, name), name)
    return found


def _is_sampler(process: Process) -> bool:
    return any("system.gpus.sampler" in word or "sampler.py" in word for word in process.words)


def _is_engine(process: Process) -> bool:
    return process.group in MODELS and any(w.endswith("/engine.py") for w in process.words[1:3])


def _is_main(process: Process, among: list[Process]) -> bool:
    return process.pid == min(
        (p.pid for p in among if p.group == process.group and _is_engine(p)), default=0
    )


KINDS: Final[Mapping[str, Callable[[Process, list[Process]], bool]]] = {
    "supervisor": lambda p, _all: p.group == "supervisor" and p.runs("appliance.supervisor"),
    "backend": lambda p, every: _is_engine(p) and _is_main(p, every),
    "worker": lambda p, every: _is_engine(p) and not _is_main(p, every),
    "gate": lambda p, _all: p.group in MODELS and p.runs(f"{PREFIX}/{GATE_SCRIPT}"),
    "wrapper": lambda p, _all: p.group in MODELS and p.runs(f"{PREFIX}/{BACKEND_SCRIPT}"),
    "sampler": lambda p, _all: _is_sampler(p),
}
"""Kinds of processes. A wrapper's poller counts as a wrapper: both are the same program."""


def of_kind(box: Box, kind: str) -> list[Process]:
    """The processes of one kind that are there now."""
    found = everything(box)
    return [p for p in found if KINDS[kind](p, found)]
