"""Looks at GPUs and profiles, put together from what was observed: what the rules judge, and where models lie."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Generic, TypeVar

from appliance.alerts.serving_state import is_desired
from appliance.alerts.snapshot import (
    GpuError,
    GpuHolder,
    GpuLook,
    ProfileLook,
    ReadingKind,
    UnitLook,
)
from appliance.health.box_view import BoxView, ProfileView
from appliance.health.watching.checks import EngineAnswers
from appliance.model.gpus import GpuHealth
from appliance.model.measurements import BoxGpus, GpuEvidence, GpuSample
from appliance.model.memory import GpuState
from appliance.model.names import unit_of
from appliance.model.observed import ActiveState
from appliance.model.profile import Applied, Catalogue
from appliance.model.speeds import SpeedReport
from appliance.model.words import Mark
from appliance.status.stalls import Activity, Look, seen
from appliance.system.systemd.unit_reader import UnitReading
from appliance.wire.sd_notify import is_patch_failure

_HIDDEN_BYTES = 256 << 20
"""Memory that no process accounts for from which on the list of processes proves no absence."""


def gpu_looks(found: BoxGpus | None) -> tuple[GpuLook, ...] | None:
    """Return every GPU; None: they could not be read, or there is no driver."""
    if found is None or not found.health:
        return None
    evidence = {sample.index: sample.evidence for sample in found.gpus}
    return tuple(_look(health, evidence.get(health.index)) for health in found.health)


def _look(health: GpuHealth, evidence: GpuEvidence | None) -> GpuLook:
    seen = evidence or GpuEvidence(uuid=health.uuid)
    errors, foreign = health.errors, health.foreign
    return GpuLook(
        uuid=health.uuid,
        index=health.index,
        name=health.name,
        is_lost=health.state is GpuState.LOST,
        errors=None
        if errors is None
        else tuple(GpuError(xid=event.xid, unix_s=event.unix_s) for event in errors),
        recovery_action=health.recovery_action,
        uncorrected_errors=health.uncorrected_errors,
        remap_pending=health.remap_pending,
        remap_failed=health.remap_failed,
        throttle_reasons=seen.throttle_reasons,
        temperature_c=seen.temperature_c,
        power_w=seen.power_w,
        busy_share=health.busy_share,
        memory_busy_share=health.memory_busy_share,
        pcie_width=seen.pcie_width,
        holders=None
        if foreign is None
        else tuple(
            GpuHolder(pid=p.pid, name=p.name, user=p.user, held_bytes=p.held_bytes) for p in foreign
        ),
        unattributed_bytes=health.unattributed_bytes,
    )


def foreign_pids(gpus: tuple[GpuLook, ...] | None) -> tuple[int, ...]:
    """Return the processes of no backend that hold memory of a GPU, each once."""
    return tuple(sorted({h.pid for gpu in gpus or () for h in gpu.holders or ()}))


def used_samples(applied: Applied, found: BoxGpus | None) -> tuple[GpuSample, ...] | None:
    """Return the GPUs that a profile uses; None: it uses none, or one of them cannot be read."""
    if found is None or not applied.gpus or found.state not in {None, GpuState.OK}:
        return None
    if applied.gpus == "all":
        return found.gpus or None
    used = tuple(sample for sample in found.gpus if sample.index in applied.gpus)
    return used if len(used) == len(applied.gpus) else None


def used_uuids(applied: Applied, found: BoxGpus | None) -> tuple[str, ...]:
    """Return the identities of the GPUs that a profile uses, lost ones too; empty: none is known."""
    if found is None or not applied.gpus:
        return ()
    is_any = applied.gpus == "all"
    return tuple(h.uuid for h in found.health if h.uuid and (is_any or h.index in applied.gpus))


def held_bytes(name: str, found: BoxGpus | None) -> int | None:
    """Return the memory of GPUs that a profile's processes hold; None: not known."""
    if found is None or not found.gpus:
        return None
    held = [
        tenant.held_bytes
        for sample in found.gpus
        for tenant in sample.tenants or ()
        if tenant.profile == name
    ]
    is_listed = all(sample.tenants is not None for sample in found.gpus)
    return sum(b or 0 for b in held) if is_listed and None not in held else None


def is_on_its_gpus(applied: Applied, found: BoxGpus | None) -> bool | None:
    """Tell whether a serving model has memory on a GPU of its profile, and on no other.

    None: not known, or it uses no GPU. Where much memory belongs to no listed process, the absence of a
    process proves nothing: its driver may not list all of them.
    """
    used = used_samples(applied, found)
    if found is None or used is None or any(sample.tenants is None for sample in found.gpus):
        return None
    on = {s.index for s in found.gpus for t in s.tenants or () if t.profile == applied.name}
    if on:
        return on <= {sample.index for sample in used}
    hidden = _unattributed(found)
    if any(hidden.get(sample.index, 0) >= _HIDDEN_BYTES for sample in used):
        return None
    return False


def _unattributed(found: BoxGpus) -> Mapping[int, int]:
    return {gpu.index: gpu.unattributed_bytes or 0 for gpu in found.health}


T = TypeVar("T")
_SERVING = frozenset({ActiveState.ACTIVE, ActiveState.RELOADING})


@dataclass(frozen=True, slots=True, kw_only=True)
class Observations:
    """Observations of one look; None: the source could not be read."""

    view: BoxView
    is_view_fresh: bool
    catalogue: Catalogue
    units: Mapping[str, UnitReading] | None = None
    """Units by name."""
    engines: EngineAnswers | None = None
    gpus: BoxGpus | None = None
    drift: Mapping[str, tuple[str, ...] | None] | None = None
    speeds: Mapping[str, SpeedReport] = field(default_factory=dict)
    quality_lost: frozenset[str] = frozenset()
    is_watched_since_boot: bool = False
    """Whether the supervisor runs since the boot (`is_desired`)."""
    units_s: float = 0.0
    """Time at which the units were read."""


@dataclass(frozen=True, slots=True)
class _News(Generic[T]):
    """Value that changes with each event, and the look that saw it first."""

    value: T
    seen_s: float


@dataclass(frozen=True, slots=True)
class _Answers:
    """Answers of an engine, as the looks have seen them so far."""

    sent_bytes: int | None
    """Bytes since the gateway's start, at the last look that had the figure."""
    at_s: float | None = None
    """Time of the look that found more than the look before."""


class ProfileLooks:
    """Maker of the looks.

    It remembers of each engine when its process began and used a CPU last, what it had answered, which
    GPUs it used, and when it was measured.
    """

    def __init__(self) -> None:
        self._activities: dict[str, Activity] = {}
        self._uuids: dict[str, tuple[str, ...]] = {}
        """GPUs by profile: a driver that fails tells none, and its profiles are down for that."""
        self._answers: dict[str, _Answers] = {}
        self._starts: dict[str, _News[tuple[int, float | None]]] = {}
        """Process of each engine that serves, by main process and start."""
        self._measured: dict[tuple[str, ReadingKind], _News[float | None]] = {}

    @property
    def began_s(self) -> float:
        """Time of the last look that saw a process begin; minus infinity: none did."""
        return max((start.seen_s for start in self._starts.values()), default=-inf)

    def looks(self, found: Observations, now_s: float) -> Mapping[str, ProfileLook]:
        """Return every applied profile."""
        self._activities = {
            name: seen(
                self._activities.get(name), Look(at_s=now_s, cpu_s=None if r is None else r.cpu_s)
            )
            for name in found.catalogue
            if (r := _reading(found, name)) is None or r.look.active in _SERVING
        }
        self._uuids = {
            name: used_uuids(applied, found.gpus) or self._uuids.get(name, ())
            for name, applied in found.catalogue.items()
            if applied.gpus
        }
        self._answers = {
            name: _after(self._answers.get(name), view.answer_bytes, now_s)
            for name, view in found.view.profiles.items()
        }
        self._starts = {
            name: _seen(self._starts.get(name), process, found.units_s)
            for name in found.catalogue
            if (process := _process(_reading(found, name))) is not None
        }
        self._measured = {
            key: _seen(self._measured.get(key), unix_s, now_s, first_s=-inf)
            for key, unix_s in _measurements(found)
        }
        return {
            name: self._look(applied, found, now_s)
            for name, applied in sorted(found.catalogue.items())
        }

    def _look(self, applied: Applied, found: Observations, now_s: float) -> ProfileLook:
        name = applied.name
        reading = _reading(found, name)
        unit = None if reading is None else reading.look
        view = found.view.profiles.get(name)
        told = view if found.is_view_fresh else None
        serves = unit is not None and unit.active in _SERVING
        answers = None if found.engines is None else found.engines.engines.get(name)
        return ProfileLook(
            name=name,
            mark=_mark(view),
            desired=_desired(applied, reading, found),
            state=None if told is None else told.state or None,
            note="" if told is None else told.note,
            unit=unit,
            answers=answers if serves else None,
            in_flight=None if told is None else told.in_flight,
            quiet_s=None if told is None else told.quiet_s,
            answered_s=self._answered_s(name, now_s),
            idle_s=self._idle_s(name, reading),
            is_on_gpu=is_on_its_gpus(applied, found.gpus) if serves else None,
            held_bytes=held_bytes(name, found.gpus) if applied.gpus else None,
            needs_bytes=None if view is None else view.needs_bytes,
            patch_applied=_patch_applied(unit),
            drift=None if found.drift is None else found.drift.get(name),
            speed=found.speeds.get(name),
            quality_lost=name in found.quality_lost,
            gpus=self._uuids.get(name, ()),
            began_s=self._starts[name].seen_s if name in self._starts else None,
            read_s=self._read_s(name, found),
        )

    def _read_s(self, name: str, found: Observations) -> Mapping[ReadingKind, float]:
        """Return the times of the readings that are of one profile alone."""
        own = {kind: one.seen_s for (of, kind), one in self._measured.items() if of == name}
        answered_s = None if found.engines is None else found.engines.read_s.get(name)
        return own if answered_s is None else {**own, ReadingKind.ANSWER: answered_s}

    def _answered_s(self, name: str, now_s: float) -> float | None:
        answers = self._answers.get(name)
        return None if answers is None or answers.at_s is None else now_s - answers.at_s

    def _idle_s(self, name: str, reading: UnitReading | None) -> float | None:
        """Return the time without CPU; None: it does not run, or its CPU time is not counted."""
        activity = self._activities.get(name)
        if reading is None or reading.cpu_s is None or activity is None:
            return None
        return activity.last.at_s - activity.active_s


def _seen(
    before: _News[T] | None, value: T, now_s: float, first_s: float | None = None
) -> _News[T]:
    """Return a value with the look that saw it first; `first_s` is that of a value whose change was not seen."""
    if before is not None and before.value == value:
        return before
    return _News(value, now_s if before is not None or first_s is None else first_s)


def _process(reading: UnitReading | None) -> tuple[int, float | None] | None:
    """Return what tells a process of a serving engine from others; None: it does not serve."""
    if reading is None or reading.look.active not in _SERVING:
        return None
    return reading.look.main_pid, reading.look.active_since_unix_s


def _measurements(
    found: Observations,
) -> Iterable[tuple[tuple[str, ReadingKind], float | None]]:
    for name, report in found.speeds.items():
        yield (name, ReadingKind.PROBE), report.last_valid_unix_s
        yield (name, ReadingKind.CANARIES), report.last_canaries_unix_s


def _after(before: _Answers | None, sent_bytes: int | None, now_s: float) -> _Answers:
    """Add the figure of a look; fewer bytes than before are those of another gateway."""
    if before is None or sent_bytes is None:
        return before or _Answers(sent_bytes)
    is_more = before.sent_bytes is not None and sent_bytes > before.sent_bytes
    return _Answers(sent_bytes, now_s if is_more else before.at_s)


def _patch_applied(unit: UnitLook | None) -> bool | None:
    """Tell whether an engine was patched; None: it has neither started nor failed for its patches.

    No engine starts without proof of its patches (`launch.patch`), so one that serves has them.
    """
    if unit is None:
        return None
    if unit.active in _SERVING:
        return True
    is_failed = unit.active is ActiveState.FAILED and is_patch_failure(unit.status_text)
    return False if is_failed else None


def _reading(found: Observations, name: str) -> UnitReading | None:
    return None if found.units is None else found.units.get(unit_of(name))


def _mark(view: ProfileView | None) -> Mark | None:
    told = None if view is None else view.mark
    return Mark(told) if told is not None and told in set(Mark) else None


def _desired(applied: Applied, reading: UnitReading | None, found: Observations) -> bool | None:
    if found.view.committed is None:
        return None
    units = found.units or {}
    rivals: list[UnitLook] = [
        units[unit].look for unit in map(unit_of, applied.conflicts) if unit in units
    ]
    return is_desired(
        applied.name,
        is_committed=applied.name in found.view.committed,
        is_held=found.view.hold,
        operation=found.view.running,
        unit=None if reading is None else reading.look,
        rivals=rivals,
        is_watched_since_boot=found.is_watched_since_boot,
    )
