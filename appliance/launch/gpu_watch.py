"""Check of the GPUs before a start, through a child that may hang, die or be stopped.

Rules of one check, which keeps to its time-out (`appliance.switch.memory` has the memory rule):

1. The sizes are read; they cost the driver microseconds. Too little memory: wait.
2. Sizes that are no proof by themselves must stay sufficient for 50 ms.
3. Only then the process lists are read, in the same reading as the sizes that decide: the lists
   take milliseconds and a lock of the driver's. Lists that forbid the start are read again when
   the sizes change, or after a quarter of a second.
4. A child without an answer for 5 s is killed: the driver hangs. The next one is started when the
   killed one has ended, and has twice the time, in case only the driver's start is slow.
5. After a child that ends, with an error or without, the next one is started half a second later.
"""

from __future__ import annotations

from functools import partial

from appliance.launch.obstacles import (
    LARGE_BYTES,
    Obstacle,
    awaited,
    joined,
    late,
    ram_sentence,
    read_host,
    shortfall_sentence,
)
from appliance.switch.memory import fit
from appliance.switch.memory.requirement import used
from appliance.system.kernel.processes import HoldingProcess, control_group, unit_of_group

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from appliance.switch.memory.requirement import MemoryRequirement
    from appliance.system.gpus.sampler_client import Device, Reading, Sampler


_DRIVER_GRACE_S = 5.0
"""Time for a driver that is being loaded, or a GPU that is being reset."""
_SILENCE_S = 5.0
_LONGEST_SILENCE_S = 20.0
_LISTS_TIMEOUT_S = 0.05
_LISTS_PAUSE_S = 0.25
_HOLDERS_TIMEOUT_S = 3.0
_RESPAWN_PAUSE_S = 0.5
_AGREEMENT_S = 0.05
_DRIVER = "driver"
_HUNG = "hung"


class GpuWatch:
    """Watch on the used GPUs while an obstacle delays a start.

    Args:
        requirement: Of the backend.
        clock: Monotonic seconds.
    """

    def __init__(self, requirement: MemoryRequirement, *, clock: Callable[[], float]) -> None:
        self._requirement = requirement
        self._clock = clock
        self._sampler: Sampler | None = None
        self._dying: Sampler | None = None
        self._not_before = 0.0
        self._silence_s = _SILENCE_S
        self._asked_s: float | None = None
        self._asked_lists = False
        self._agreed_since_s: float | None = None
        self._lists_not_before = 0.0
        self._lists_held: int | None = None
        self._last = _of_driver("the NVIDIA driver does not answer")
        self.held: int | None = None
        """Bytes in use on the used GPUs at the last reading; None: none yet."""
        self._start()

    def check(self, timeout_s: float) -> Obstacle | None:
        """Return the obstacle, waiting about `timeout_s` for the driver; None: there is none."""
        self._start()
        obstacle = self._last if self._sampler is None else self._check(timeout_s)
        if obstacle is not None:
            self._last = obstacle
        return obstacle

    def amounts(self) -> dict[int, int]:
        """Return each process's bytes on all used GPUs, where the driver tells them."""
        found: dict[int, int] = {}
        reading = self._lists()
        for device in used(self._requirement, reading.devices) if reading else ():
            for process in device.processes or ():
                if process.held_bytes is not None:
                    found[process.pid] = found.get(process.pid, 0) + process.held_bytes
        return found

    def close(self) -> None:
        """End the child, even one that hangs."""
        if self._sampler is not None:
            self._sampler.close()
            self._sampler = None

    def _start(self) -> None:
        """Start the child unless one runs; it loads the driver's library in the background."""
        if self._dying is not None and self._dying.gone():
            self._dying = None
        if self._sampler is None and self._dying is None and self._clock() >= self._not_before:
            from appliance.system.gpus.sampler_client import Sampler  # noqa: PLC0415

            self._sampler = Sampler()
            self._asked_s = None
            self._ask(lists=False)

    def _ask(self, *, lists: bool) -> None:
        """Send a request, unless one is open already."""
        if self._sampler is not None and self._asked_s is None:
            self._asked_s, self._asked_lists = self._clock(), lists
            self._sampler.ask(with_processes=lists)

    def _answer(self, timeout_s: float) -> Reading | None:
        reading = None if self._sampler is None else self._sampler.answer(timeout_s)
        if reading is not None:
            self._asked_s = None
            self._silence_s = _SILENCE_S
        return reading

    def _read(self, timeout_s: float, *, lists: bool) -> Reading | Obstacle:
        """Return a reading of the GPUs, or the obstacle that a driver without an answer is."""
        self._ask(lists=lists)
        reading = self._answer(timeout_s)
        if reading is None:
            return self._silent()
        return self._broken(reading) if reading.error_kind else reading

    def _check(self, timeout_s: float) -> Obstacle | None:
        reading = self._read(timeout_s, lists=False)
        if isinstance(reading, Obstacle):
            return reading
        obstacle = self._short(reading) or self._agreement(reading)
        if obstacle is not None or not fit.needs_lists(self._requirement, reading.devices):
            return obstacle
        return self._crowd(reading)

    def _short(self, reading: Reading) -> Obstacle | None:
        """Return the obstacle that the sizes show; None: there is none."""
        now = read_host()
        self.held = fit.held_bytes(self._requirement, reading.devices, now)
        short = next(fit.shortfalls(self._requirement, reading.devices, now), None)
        if short is None:
            return None
        self._agreed_since_s = None
        if short.kind == fit.BROKEN:
            return self._failing(short)
        return late(short, partial(self._late_sentence, short))

    def _agreement(self, reading: Reading) -> Obstacle | None:
        """Return the obstacle of readings that have not agreed long enough; None: they agree."""
        if fit.is_proved_at_once(self._requirement, reading.devices):
            return None
        if self._agreed_since_s is None:
            self._agreed_since_s = self._clock()
        if self._clock() - self._agreed_since_s >= _AGREEMENT_S:
            return None
        text = "a second reading has to agree"
        return awaited(text, "the readings of the GPU's memory disagree")

    def _crowd(self, reading: Reading) -> Obstacle | None:
        """Return the obstacle that the process lists show although memory is free; None: there is none."""
        if not self._asked_lists:
            if self._clock() < self._lists_not_before and self.held == self._lists_held:
                return self._last
            answer = self._read(_LISTS_TIMEOUT_S, lists=True)
            if isinstance(answer, Obstacle):
                return answer
            reading = answer
            if (obstacle := self._short(reading)) is not None:
                return obstacle
        short = fit.in_the_way(self._requirement, reading.devices, _unit)
        if short is None:
            return None
        self._lists_not_before = self._clock() + _LISTS_PAUSE_S
        self._lists_held = self.held
        explain = partial(self._late_sentence, short)
        return late(short, explain, own=self._requirement.own)

    def _silent(self) -> Obstacle:
        """Return the last obstacle, or end a child that has been silent for too long."""
        asked_s = self._asked_s
        if self._sampler is None or asked_s is None or self._clock() - asked_s < self._silence_s:
            return self._last
        sentence = f"the NVIDIA driver hangs: no answer for {self._silence_s:.0f} s"
        self._silence_s = min(2 * self._silence_s, _LONGEST_SILENCE_S)
        if not self._sampler.close():
            self._dying = self._sampler
            sentence += ", and its reader cannot be ended"
        self._sampler = None
        self._agreed_since_s = None
        return _of_driver(sentence, kind=_HUNG)

    def _broken(self, reading: Reading) -> Obstacle:
        """Return the obstacle of a child that has ended with an error."""
        self.close()
        self._agreed_since_s = None
        self._not_before = self._clock() + _RESPAWN_PAUSE_S
        return _of_driver(
            f"GPUs are claimed, but {reading.error_text}",
            kind=reading.error_kind,
            patience_s=_patience_s(reading.error_kind, otherwise_s=0.0),
        )

    def _failing(self, short: fit.Shortfall) -> Obstacle:
        """Return the obstacle of a used GPU that does not work."""
        patience_s = _patience_s(short.error_kind, otherwise_s=None)
        return _of_driver(shortfall_sentence(short), kind=short.error_kind, patience_s=patience_s)

    def _late_sentence(self, short: fit.Shortfall) -> str:
        """Return the shortfall with every holder, and the memory without a visible owner."""
        text = shortfall_sentence(short)
        reading = self._lists()
        if reading is None or reading.error_kind:
            return f"{text}; the driver does not say who holds it"
        ours = used(self._requirement, reading.devices)
        sentence = "; ".join((text, *filter(None, map(_holders, ours))))
        shared = any(d.quality == fit.UNIFIED for d in ours)
        return ram_sentence(sentence) if shared or short.kind == fit.RAM else sentence

    def _lists(self) -> Reading | None:
        if self._asked_s is not None and not self._asked_lists:
            pending = self._answer(_HOLDERS_TIMEOUT_S)
            if pending is None or pending.error_kind:
                return pending
        self._ask(lists=True)
        return self._answer(_HOLDERS_TIMEOUT_S)


def _of_driver(sentence: str, *, kind: str = _DRIVER, patience_s: float | None = None) -> Obstacle:
    return Obstacle(sentence, kind=kind, explain=partial(str, sentence), patience_s=patience_s)


def _patience_s(kind: str, *, otherwise_s: float | None) -> float | None:
    """Return the time for which an error is tolerated; None: until the deadline."""
    from appliance.system.gpus.states import DEVICE, LOST, NO_DRIVER, READER  # noqa: PLC0415

    known = {NO_DRIVER: _DRIVER_GRACE_S, LOST: _DRIVER_GRACE_S, DEVICE: None, READER: None}
    return known.get(kind, otherwise_s)


def _unit(pid: int) -> str:
    return unit_of_group(control_group(pid))


def _holders(device: Device) -> str:
    """Return the holders of a GPU's memory, the largest first; empty: none of significance."""
    processes = sorted(device.processes or [], key=lambda p: -(p.held_bytes or 0))
    named = joined(HoldingProcess(p.pid, held_bytes=p.held_bytes) for p in processes)
    sizes = [p.held_bytes for p in processes if p.held_bytes is not None]
    rest = _rest(device.used_bytes - sum(sizes)) if len(sizes) == len(processes) else ""
    everybody = ", ".join(filter(None, (named, rest)))
    return f"GPU {device.index} is held by {everybody}" if everybody else ""


def _rest(unattributed_bytes: int) -> str:
    from appliance.model.amounts import size  # noqa: PLC0415

    if unattributed_bytes < LARGE_BYTES:
        return ""
    return f"{size(unattributed_bytes)} that no visible process accounts for"
