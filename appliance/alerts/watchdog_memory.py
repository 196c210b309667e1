"""Memory of the watchdog from look to look: what a rule has to compare with.

It is bounded, and JSON by `dataclasses.asdict` and `wire.typed_json`. Times that end in ``_s``
alone are of the monotonic clock, which begins anew with each boot; a clock that went back is a boot.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final, TypeVar

from appliance.alerts.snapshot import BoxLook, GpuError, GpuLook, UnitLook
from appliance.model.names import GATEWAY_UNIT, SUPERVISOR_UNIT, unit_of
from appliance.model.observed import ActiveState
from appliance.model.operations import Kind

LOOP_WITHIN_S: Final = 600.0
LOOP_RESTARTS: Final = 3
"""Restarts in 10 min that are a crash loop: systemd gives a backend up after 5 starts in 30 min."""
LOADED_SHARE: Final = 0.5
"""Utilisation from which a GPU is under load: links and clocks of an idle one are turned down."""
SPIN_SHARE: Final = 0.9
SPIN_MEMORY_SHARE: Final = 0.01
LOW_POWER: Final = 0.6
"""Utilisation, memory activity and share of the most power that was seen, at which a GPU runs a kernel
that only waits: NVML's signature of a hang (docs/decisions/038). A prefill moves memory and draws power."""
ERRORS_KEPT_S: Final = 86_400.0
_MOST_ERRORS: Final = 16
_MOST_GPUS: Final = 64
_MOST_TIMES: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuRecord:
    """Record of one GPU."""

    uuid: str
    index: int
    name: str = ""
    is_seen: bool = True
    """Whether the driver has listed it since the boot."""
    widest_pcie: int | None = None
    """Widest link under load; None: none was read."""
    most_power_w: float | None = None
    """Most power under load; None: none was read."""
    uncorrected_errors: int | None = None
    uncorrected_unix_s: float | None = None
    """Time of the last look at which there were more than before; None: never."""
    loaded_s: float | None = None
    """Last look that found it under load; None: none in this boot."""
    spinning_since_s: float | None = None
    """First look since which every reading has the signature of a hang; None: the last has not."""
    errors: tuple[GpuError, ...] = ()
    """XID errors of a day, oldest first; the supervisor forgets them when it starts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartRecord:
    """Restarts of one unit."""

    unit: str
    restarts: int
    """Count of the last look."""
    times_s: tuple[float, ...] = ()
    """Looks that found one restart more, oldest first."""
    repair: int = 0
    """Number of the last repair that started it; 0: none has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileWait:
    """Time since which a profile that should serve has been loading or stopping."""

    profile: str
    since_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchdogMemory:
    """Memory after one look."""

    monotonic_s: float = 0.0
    gpus: tuple[GpuRecord, ...] = ()
    units: tuple[RestartRecord, ...] = ()
    waits: tuple[ProfileWait, ...] = ()
    stalled: tuple[str, ...] = ()
    """Profiles whose engine made no progress, and has not been seen at work since."""
    boot_id: str = ""
    operated_s: float | None = None
    """Last look at which an operation ran; None: none did."""

    def gpu(self, gpu: GpuLook) -> GpuRecord | None:
        """Return the record of a GPU: by its UUID, or by its index where it has none."""
        return next((one for one in self.gpus if _is_same(one, gpu)), None)

    def restarts(self) -> Mapping[str, int]:
        """Return the restarts of each unit in the last 10 min."""
        return {one.unit: len(one.times_s) for one in self.units}

    def waited_s(self) -> Mapping[str, float]:
        """Return for how long profiles have been loading or stopping; others are missing."""
        return {one.profile: self.monotonic_s - one.since_s for one in self.waits}


def remember(look: BoxLook, before: WatchdogMemory) -> WatchdogMemory:
    """Return the memory with one more look."""
    is_named = bool(look.boot_id and before.boot_id)
    is_other = look.boot_id != before.boot_id
    if is_other if is_named else look.monotonic_s < before.monotonic_s:
        before = WatchdogMemory(gpus=tuple(map(_after_boot, before.gpus)))
    return WatchdogMemory(
        monotonic_s=look.monotonic_s,
        gpus=_gpus(look, before),
        units=tuple(_restarts(look, {one.unit: one for one in before.units})),
        waits=tuple(_waits(look, {wait.profile: wait for wait in before.waits})),
        stalled=tuple(name for name in before.stalled if name in look.profiles),
        boot_id=look.boot_id,
        operated_s=before.operated_s if look.operation is None else look.monotonic_s,
    )


def _after_boot(gpu: GpuRecord) -> GpuRecord:
    return replace(gpu, is_seen=False, loaded_s=None, spinning_since_s=None, errors=())


# ── Units and profiles ──────────────────────────────────────────────────────


def _restarts(look: BoxLook, before: Mapping[str, RestartRecord]) -> Iterable[RestartRecord]:
    units = (look.supervisor, look.gateway, *(one.unit for one in look.profiles.values()))
    found = {unit.unit: unit for unit in units if unit is not None}
    kept = {SUPERVISOR_UNIT, GATEWAY_UNIT, *map(unit_of, look.profiles)}
    for name, record in before.items():
        if name in kept and name not in found:  # systemd did not answer
            yield record
    for name, unit in found.items():
        yield _restarted(unit, before.get(name), look.monotonic_s, _repair(look, name))


def _repair(look: BoxLook, unit: str) -> int:
    """Return the number of the last repair that starts a unit, as far as a look shows; 0: none does."""
    repairs = []
    if look.operation is not None and look.operation.kind == Kind.REPAIR:
        repairs.append((look.operation.id, look.operation.started))
    if look.last_operation is not None and look.last_operation.kind == Kind.REPAIR:
        repairs.append((look.last_operation.id, look.last_operation.target[:1]))
    return max((number for number, names in repairs if unit in map(unit_of, names)), default=0)


def _restarted(
    unit: UnitLook, before: RestartRecord | None, now_s: float, repair: int
) -> RestartRecord:
    """Return the record of a unit, with the restarts since the look before.

    systemd begins to count anew with each start that is not its own, such as a repair after the gate
    has refused a restart: the earlier ones stay, and the repair is one more. A unit that somebody stopped has
    none: what it did before says nothing of its next start.
    """
    is_stopped = unit.active is ActiveState.INACTIVE and unit.result == "success"
    if before is None or is_stopped or unit.was_stopped:
        return RestartRecord(unit=unit.unit, restarts=unit.restarts, repair=repair)
    is_counted_anew = unit.restarts < before.restarts
    more = unit.restarts - (0 if is_counted_anew else before.restarts)
    more += repair > before.repair
    times_s = (*before.times_s, *[now_s] * min(more, _MOST_TIMES))[-_MOST_TIMES:]
    recent_s = tuple(at_s for at_s in times_s if now_s - at_s < LOOP_WITHIN_S)
    return RestartRecord(
        unit=unit.unit,
        restarts=unit.restarts,
        times_s=recent_s,
        repair=max(repair, before.repair),
    )


_UNDER_WAY: Final = frozenset({ActiveState.ACTIVATING, ActiveState.DEACTIVATING})


def _waits(look: BoxLook, before: Mapping[str, ProfileWait]) -> Iterable[ProfileWait]:
    for profile in look.profiles.values():
        unit = profile.unit
        is_waiting = (
            profile.state in {"loading", "stopping"} if unit is None else unit.active in _UNDER_WAY
        )
        if profile.desired and is_waiting and look.operation is None:
            begun = ProfileWait(profile=profile.name, since_s=look.monotonic_s)
            yield before.get(profile.name, begun)


# ── GPUs ────────────────────────────────────────────────────────────────────


def _is_same(record: GpuRecord, gpu: GpuLook) -> bool:
    return record.uuid == gpu.uuid if gpu.uuid else record.index == gpu.index


def _gpus(look: BoxLook, before: WatchdogMemory) -> tuple[GpuRecord, ...]:
    if look.gpus is None:
        return before.gpus
    listed = [_seen(gpu, before.gpu(gpu), look) for gpu in look.gpus[:_MOST_GPUS]]
    others = [one for one in before.gpus if not any(_is_same(one, gpu) for gpu in look.gpus)]
    return (*listed, *others)[:_MOST_GPUS]


def _seen(gpu: GpuLook, known: GpuRecord | None, look: BoxLook) -> GpuRecord:
    record = known or GpuRecord(uuid=gpu.uuid, index=gpu.index)
    is_loaded = gpu.busy_share is not None and gpu.busy_share >= LOADED_SHARE
    spins = is_spinning(gpu, record)
    since_s = record.spinning_since_s
    count, before = gpu.uncorrected_errors, record.uncorrected_errors
    grew = count is not None and before is not None and count > before
    return GpuRecord(
        uuid=record.uuid,
        index=gpu.index,
        name=gpu.name or record.name,
        widest_pcie=_most(
            record.widest_pcie, gpu.widest_pcie, gpu.pcie_width if is_loaded else None
        ),
        most_power_w=_most(record.most_power_w, gpu.power_w if is_loaded else None),
        uncorrected_errors=before if count is None else count,
        uncorrected_unix_s=look.unix_s if grew else record.uncorrected_unix_s,
        loaded_s=look.monotonic_s if is_loaded else record.loaded_s,
        spinning_since_s=(look.monotonic_s if since_s is None else since_s) if spins else None,
        errors=_errors(gpu, record, look.unix_s),
    )


def is_spinning(gpu: GpuLook, record: GpuRecord) -> bool:
    """Tell whether a reading has the signature of a hang; False also where that is not known."""
    busy, memory, power_w = gpu.busy_share, gpu.memory_busy_share, gpu.power_w
    if busy is None or memory is None or power_w is None or record.most_power_w is None:
        return False
    is_low = power_w < LOW_POWER * record.most_power_w
    return busy >= SPIN_SHARE and memory <= SPIN_MEMORY_SHARE and is_low


def _errors(gpu: GpuLook, record: GpuRecord, now_unix_s: float) -> tuple[GpuError, ...]:
    """Return the errors of a day, each once."""
    found = {(one.unix_s, one.xid): one for one in (*record.errors, *(gpu.errors or ()))}
    recent = [found[key] for key in sorted(found) if now_unix_s - key[0] < ERRORS_KEPT_S]
    return tuple(recent[-_MOST_ERRORS:])


_Figure = TypeVar("_Figure", int, float)


def _most(*figures: _Figure | None) -> _Figure | None:
    return max((figure for figure in figures if figure is not None), default=None)
