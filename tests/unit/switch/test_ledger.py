"""Ledger of the holders of memory, and the part of a sample that becomes a peak."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.model.memory import DeviceMemory, GpuMemory, GpuState, GroupMemory, Holder, Quality
from appliance.model.names import profile_of, unit_of
from appliance.model.profile import Applied, Need
from appliance.switch.ledger import Ledger, grown, ledger_of, used_devices, worth_keeping
from appliance.switch.memory.peak import ObservedPeak
from tests.fakes.profiles import applied

GIB = 1 << 30
MIB = 1 << 20
NOW = 1_000_000.0
TOTAL = 32 * GIB
GENESIS = applied("genesis", "gpu-all")
CPU = applied("mini", "cpu")
OFFLOADED = applied("offloaded", "gpu-0", need=Need(ram_bytes=9 * GIB))
FINGERPRINT = GENESIS.fingerprint


def holder(held: int | None, *, unit: str = unit_of("genesis"), pid: int = 42) -> Holder:
    return Holder(pid=pid, held_bytes=held, comm="engine", user="appliance-backend", unit=unit)


def device(
    *holders: Holder,
    index: int = 0,
    quality: Quality = Quality.EXACT,
    used: int = 20 * GIB,
    listed: bool = True,
) -> DeviceMemory:
    return DeviceMemory(
        index=index,
        uuid=f"GPU-{index}",
        name="card",
        total_bytes=24 * GIB,
        free_bytes=24 * GIB - used,
        used_bytes=used,
        quality=quality,
        holders=holders if listed else None,
    )


def group(resident: int, *, pinned: int = 0, locked: int = 0) -> GroupMemory:
    return GroupMemory(
        resident_bytes=resident, locked_bytes=locked, pinned_bytes=pinned, pids=(42,)
    )


def sample(*devices: DeviceMemory, ram: GroupMemory | None = None, name: str = "genesis") -> Ledger:
    groups = {} if ram is None else {name: ram}
    return ledger_of(GpuMemory(devices=devices), groups, now_unix_s=NOW, now_s=3.0)


def grow(
    ledger: Ledger, peak: ObservedPeak | None = None, profile: Applied = GENESIS
) -> ObservedPeak | None:
    return grown(peak, profile, ledger, ram_total_bytes=TOTAL)


def known(
    held: int,
    ram: int | None = None,
    *,
    uuid: str = "GPU-0",
    fingerprint: str = FINGERPRINT,
    at_s: float = 7.0,
) -> ObservedPeak:
    gpus = {uuid: held}
    return ObservedPeak(fingerprint=fingerprint, gpus=gpus, ram_bytes=ram, seen_unix_s=at_s)


def test_a_holder_is_its_units_profile_or_foreign() -> None:
    """Only a process in a backend's own unit is that profile's; the largest comes first."""
    ledger = sample(
        device(holder(GIB), holder(2 * GIB, unit="user@1000.service", pid=7), holder(None, unit=""))
    )
    assert [(profile_of(h.unit), h.pid, h.held_bytes) for h in ledger.holders["GPU-0"]] == [
        (None, 7, 2 * GIB),
        ("genesis", 42, GIB),
        (None, 42, None),
    ]


@pytest.mark.parametrize(
    ("ledger", "held"),
    [
        (sample(device(holder(GIB)), device(holder(2 * GIB), index=1)), 3 * GIB),
        (sample(device(holder(GIB)), device(index=1, listed=False)), GIB),
        (sample(device(holder(GIB, unit="x.service"))), 0),
        (sample(device(holder(None))), None),
        (sample(device(listed=False)), None),
        (sample(), None),
    ],
)
def test_memory_of_a_profile_over_all_gpus(ledger: Ledger, held: int | None) -> None:
    """Sums of what is known; one unknown size of its own makes the sum unknown."""
    assert ledger.vram_bytes("genesis") == held


@pytest.mark.parametrize(
    ("devices", "indexes"),
    [(("gpu-all",), [0, 1]), (("gpu-1",), [1]), (("gpu-0", "gpu-5"), []), (("cpu",), [])],
)
def test_gpus_that_a_profile_uses(devices: tuple[str, ...], indexes: list[int]) -> None:
    """A profile uses all GPUs or the named ones; none when one of those is missing."""
    gpus = GpuMemory(devices=(device(), device(index=1)))
    assert [d.index for d in used_devices(applied("x", *devices), gpus)] == indexes


@pytest.mark.parametrize(
    ("ledger", "gpus"),
    [
        (sample(device(holder(11 * GIB))), {"GPU-0": 11 * GIB}),
        (
            sample(device(holder(GIB)), device(index=1, used=0)),
            {"GPU-0": GIB, "GPU-1": 0},
        ),
        (sample(device(holder(15 * GIB), holder(15 * GIB, pid=43))), {"GPU-0": 20 * GIB}),
        (sample(device(holder(GIB), holder(None, unit="x.service"))), {"GPU-0": GIB}),
        (sample(device(holder(GIB), holder(None))), None),
        (sample(device(holder(GIB, unit="x.service"))), None),
        (sample(device(listed=False)), None),
        (sample(device(holder(GIB), quality=Quality.OPAQUE)), None),
        (sample(device(holder(GIB)), device(index=1, quality=Quality.OPAQUE)), None),
        (sample(device(holder(GIB), quality=Quality.UNIFIED)), {}),
        (sample(device(holder(GIB), quality=Quality.NUMA)), {}),
        (sample(), None),
    ],
    ids=str,
)
def test_what_counts_towards_a_peak(ledger: Ledger, gpus: dict[str, int] | None) -> None:
    """Only memory that is surely the backend's own, on figures that mean something."""
    peak = grow(ledger)
    assert (None if peak is None else peak.gpus) == gpus


def test_nothing_read_leaves_a_peak_as_it_was() -> None:
    """A driver that hangs takes nothing away."""
    lost = ledger_of(
        GpuMemory(state=GpuState.HUNG, reason="it hangs"), {}, now_unix_s=NOW, now_s=3.0
    )
    peak = known(5)
    assert grow(lost, peak) is peak


def test_a_peak_only_rises() -> None:
    """A smaller sample changes nothing, not even the time; a larger one changes both."""
    peak = known(11 * GIB)
    assert grow(sample(device(holder(10 * GIB))), peak) is peak
    assert grow(sample(device(holder(12 * GIB))), peak) == known(12 * GIB, at_s=NOW)


def test_another_configuration_begins_anew() -> None:
    """The peak of another fingerprint is forgotten."""
    old = known(15 * GIB, fingerprint="other")
    assert grow(sample(device(holder(GIB))), old) == known(GIB, at_s=NOW)


def test_another_card_begins_anew() -> None:
    """Figures of a GPU that is no longer used are dropped, others stay."""
    peak = known(15 * GIB, uuid="GPU-sold")
    seen = grow(sample(device(holder(GIB))), peak)
    assert seen is not None
    assert seen.gpus == {"GPU-0": GIB}


def test_a_profile_without_fingerprint_has_no_peak() -> None:
    """A profile that an older release installed has no record."""
    assert grow(sample(device(holder(GIB))), None, replace(GENESIS, fingerprint="")) is None


@pytest.mark.parametrize(
    ("profile", "ram", "counted"),
    [
        (GENESIS, group(18 * GIB, pinned=2 * GIB), 2 * GIB),
        (OFFLOADED, group(18 * GIB, pinned=2 * GIB), 9 * GIB),
        (OFFLOADED, group(18 * GIB, pinned=10 * GIB), 10 * GIB),
        (CPU, group(20 * GIB, pinned=2 * GIB), 20 * GIB),
        (CPU, group(30 * GIB, pinned=2 * GIB), 24 * GIB),
        (CPU, group(30 * GIB, pinned=29 * GIB), 29 * GIB),
        (CPU, None, None),
    ],
)
def test_main_memory_that_counts(
    profile: Applied, ram: GroupMemory | None, counted: int | None
) -> None:
    """Mapped files count up to a share of the machine; with GPUs, up to what is declared."""
    own = holder(GIB, unit=unit_of(profile.name))
    ledger = sample(device(own), ram=ram, name=profile.name)
    peak = grow(ledger, None, profile)
    assert peak is not None
    assert peak.ram_bytes == counted


def test_a_group_that_cannot_be_read_keeps_its_peak() -> None:
    """Unknown main memory is not none."""
    seen = grow(sample(device(holder(6))), known(5, ram=4))
    assert seen is not None
    assert (seen.gpus, seen.ram_bytes) == ({"GPU-0": 6}, 4)


@pytest.mark.parametrize(
    ("kept", "now", "worth"),
    [
        (None, known(1), True),
        (known(1, fingerprint="other"), known(1), True),
        (known(1, uuid="GPU-9"), known(1), True),
        (known(10 * GIB), known(10 * GIB), False),
        (known(10 * GIB), known(10 * GIB + 100 * MIB), False),
        (known(10 * GIB), known(10 * GIB + 110 * MIB), True),
        (known(GIB), known(GIB + 60 * MIB), False),
        (known(GIB), known(GIB + 70 * MIB), True),
        (known(GIB), known(GIB, ram=1), True),
        (known(GIB, ram=GIB), known(GIB, ram=2 * GIB), True),
        (known(GIB, ram=GIB), known(GIB), False),
    ],
)
def test_what_is_worth_writing(
    kept: ObservedPeak | None, now: ObservedPeak, *, worth: bool
) -> None:
    """First figures, and growth by more than 1 % and 64 MiB."""
    assert worth_keeping(kept, now) is worth


@given(held=st.lists(st.integers(0, 24 * GIB), min_size=1))
def test_a_peak_is_the_largest_sample(held: list[int]) -> None:
    """In whatever order samples come, the peak is the largest of those that held something."""
    peak: ObservedPeak | None = None
    for amount in held:
        peak = grow(sample(device(holder(amount), used=24 * GIB)), peak)
    assert (0 if peak is None else peak.gpus["GPU-0"]) == max(held)
