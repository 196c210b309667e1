"""Looks: GPUs and profiles, put together from what was observed."""

from dataclasses import replace
from math import inf

import pytest

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
from appliance.health.watching.looks import (
    Observations,
    ProfileLooks,
    foreign_pids,
    gpu_looks,
    held_bytes,
    is_on_its_gpus,
)
from appliance.model.gpus import ForeignProcess, GpuHealth, XidEvent
from appliance.model.measurements import BoxGpus, GpuEvidence, GpuSample, GpuTenant
from appliance.model.memory import GpuState
from appliance.model.observed import ActiveState
from appliance.model.speeds import SpeedReport
from appliance.model.words import Mark
from appliance.system.systemd.unit_reader import UnitReading
from appliance.wire.sd_notify import patch_failure
from tests.fakes.profiles import applied, catalogue

GIB = 1 << 30
ENGINE = GpuTenant(profile="a", pid=41, name="vllm", held_bytes=8 * GIB)
OTHER = GpuTenant(profile=None, pid=7, name="miner", held_bytes=GIB)


def gpus(*tenants: tuple[GpuTenant, ...] | None, hidden: int | None = 0) -> BoxGpus:
    """GPUs that work, each with its processes."""
    return BoxGpus(
        taken_s=1.0,
        gpus=tuple(
            GpuSample(index=i, evidence=GpuEvidence(uuid=f"GPU-{i}"), tenants=listed)
            for i, listed in enumerate(tenants)
        ),
        state=GpuState.OK,
        health=tuple(
            GpuHealth(index=i, uuid=f"GPU-{i}", unattributed_bytes=hidden)
            for i in range(len(tenants))
        ),
    )


def test_a_gpu_is_told_with_its_evidence() -> None:
    """Errors, verdicts and processes come with the state of the same GPU."""
    health = GpuHealth(
        index=3,
        uuid="GPU-3",
        name="RTX",
        errors=(XidEvent(xid=48, unix_s=5.0),),
        recovery_action="gpu-reset",
        uncorrected_errors=2,
        remap_pending=True,
        remap_failed=False,
        busy_share=0.9,
        memory_busy_share=0.1,
        foreign=(ForeignProcess(pid=7, name="miner", user="bob", held_bytes=GIB),),
        unattributed_bytes=4,
    )
    evidence = GpuEvidence(
        uuid="GPU-3",
        power_w=250.0,
        temperature_c=70,
        throttle_reasons=("hw_slowdown",),
        pcie_width=8,
    )
    found = BoxGpus(taken_s=1.0, gpus=(GpuSample(index=3, evidence=evidence),), health=(health,))
    looks = gpu_looks(found)
    assert looks == (
        GpuLook(
            uuid="GPU-3",
            index=3,
            name="RTX",
            errors=(GpuError(xid=48, unix_s=5.0),),
            recovery_action="gpu-reset",
            uncorrected_errors=2,
            remap_pending=True,
            remap_failed=False,
            throttle_reasons=("hw_slowdown",),
            temperature_c=70,
            power_w=250.0,
            busy_share=0.9,
            memory_busy_share=0.1,
            pcie_width=8,
            holders=(GpuHolder(pid=7, name="miner", user="bob", held_bytes=GIB),),
            unattributed_bytes=4,
        ),
    )
    assert foreign_pids(looks) == (7,)


def test_a_lost_gpu_is_told_without_evidence() -> None:
    """Of a GPU that fell off the bus only that is known."""
    lost = GpuHealth(index=1, uuid="GPU-1", state=GpuState.LOST)
    assert gpu_looks(BoxGpus(taken_s=1.0, health=(lost,))) == (
        GpuLook(uuid="GPU-1", index=1, is_lost=True),
    )


def test_without_a_reading_there_are_no_gpus() -> None:
    """No answer, no driver, or an older supervisor: nothing is known."""
    assert gpu_looks(None) is None
    assert gpu_looks(BoxGpus(taken_s=1.0, state=GpuState.NO_DRIVER)) is None
    assert foreign_pids(None) == ()


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (None, None),
        (BoxGpus(taken_s=1.0), None),
        (gpus((ENGINE, OTHER), (ENGINE,)), 16 * GIB),
        (gpus((OTHER,), ()), 0),
        (gpus((ENGINE,), None), None),
        (gpus((replace(ENGINE, held_bytes=None),), ()), None),
    ],
)
def test_memory_of_a_profile_is_known_where_all_is_listed(
    found: BoxGpus | None, expected: int | None
) -> None:
    """A size or a list that the driver does not tell makes the sum unknown."""
    assert held_bytes("a", found) == expected


@pytest.mark.parametrize(
    ("devices", "found", "expected"),
    [
        (("gpu-all",), gpus((ENGINE,), ()), True),
        (("gpu-0",), gpus((ENGINE,), ()), True),
        (("gpu-1",), gpus((ENGINE,), ()), False),
        (("gpu-0",), gpus((), (ENGINE,)), False),
        (("gpu-0",), gpus((ENGINE,), (ENGINE,)), False),
        (("gpu-all",), gpus((OTHER,), ()), False),
        (("gpu-all",), gpus((OTHER,), (), hidden=GIB), None),  # a driver that lists not all
        (("gpu-all",), gpus((OTHER,), (), hidden=None), False),
        (("gpu-all",), gpus((ENGINE,), None), None),
        (("gpu-2",), gpus((ENGINE,), ()), None),
        (("gpu-all",), replace(gpus((ENGINE,), ()), state=GpuState.LOST), None),
        (("gpu-all",), BoxGpus(taken_s=1.0, state=GpuState.OK), None),
        (("cpu",), gpus((), ()), None),
        (("gpu-all",), None, None),
    ],
)
def test_a_model_is_where_its_processes_hold_memory(
    *, devices: tuple[str, ...], found: BoxGpus | None, expected: bool | None
) -> None:
    """A model lies on its GPUs, beside them, or that is not known: it is never assumed."""
    assert is_on_its_gpus(applied("a", *devices), found) is expected


BOX = catalogue(replace(applied("a", "gpu-0"), conflicts=("b",)), applied("b", "gpu-0"))
RUNS = UnitLook(
    unit="appliance-backend-a.service",
    active=ActiveState.ACTIVE,
    sub="running",
    main_pid=7,
    active_since_unix_s=5.0,
)
STOPPED = UnitLook(unit="appliance-backend-b.service")
TOLD = ProfileView(
    name="a",
    applied=BOX["a"],
    serving=True,
    started_unix_s=5.0,
    main_pid=7,
    mark="live",
    held=False,
    state="serving",
    note="slow",
    needs_bytes=9,
    in_flight=2,
    quiet_s=4.0,
)
VIEW = BoxView(connected=True, profiles={"a": TOLD}, committed=frozenset({"a"}))
FOUND = Observations(
    view=VIEW,
    is_view_fresh=True,
    catalogue=BOX,
    units={
        RUNS.unit: UnitReading(look=RUNS, cpu_s=1.0),
        STOPPED.unit: UnitReading(look=STOPPED),
    },
    engines=EngineAnswers(gateway=True, engines={"a": True}),
    gpus=BoxGpus(
        taken_s=1.0,
        gpus=(
            GpuSample(
                index=0,
                evidence=GpuEvidence(uuid="GPU-0"),
                tenants=(GpuTenant(profile="a", pid=7, name="vllm", held_bytes=8),),
            ),
        ),
        state=GpuState.OK,
        health=(GpuHealth(index=0, uuid="GPU-0"),),
    ),
    drift={"a": ("+Nice=5",), "b": None},
    speeds={"a": SpeedReport(profile="a")},
    quality_lost=frozenset({"a"}),
)


def test_a_profile_is_put_together_from_every_source() -> None:
    """Marks come from the supervisor, the unit from systemd, the rest from where it is seen."""
    looks = ProfileLooks().looks(FOUND, 100.0)
    assert looks["a"] == ProfileLook(
        name="a",
        mark=Mark.LIVE,
        desired=True,
        state="serving",
        note="slow",
        unit=RUNS,
        answers=True,
        in_flight=2,
        quiet_s=4.0,
        idle_s=0.0,
        is_on_gpu=True,
        held_bytes=8,
        needs_bytes=9,
        patch_applied=True,
        drift=("+Nice=5",),
        speed=SpeedReport(profile="a"),
        quality_lost=True,
        gpus=("GPU-0",),
        began_s=0.0,
        read_s={ReadingKind.PROBE: -inf, ReadingKind.CANARIES: -inf},
    )
    b = looks["b"]
    assert (b.mark, b.desired, b.unit, b.answers, b.is_on_gpu, b.idle_s) == (
        *(None, False, STOPPED),
        *[None] * 3,
    )


def test_an_old_status_keeps_the_mark_and_nothing_else() -> None:
    """While the supervisor is away its figures are unknown, its decisions stay, units are seen."""
    look = ProfileLooks().looks(replace(FOUND, is_view_fresh=False), 100.0)["a"]
    assert (look.mark, look.desired, look.unit, look.needs_bytes) == (Mark.LIVE, True, RUNS, 9)
    assert (look.state, look.note, look.in_flight, look.quiet_s) == (None, "", None, None)


@pytest.mark.parametrize(
    "after",
    [
        BoxGpus(
            taken_s=2.0,
            gpus=(GpuSample(index=1, evidence=GpuEvidence(uuid="GPU-1")),),
            state=GpuState.LOST,
            health=(
                GpuHealth(index=0, uuid="GPU-0", state=GpuState.LOST),
                GpuHealth(index=1, uuid="GPU-1"),
            ),
        ),
        BoxGpus(taken_s=2.0, state=GpuState.MISMATCH),
        None,
    ],
)
def test_a_profile_keeps_the_gpus_that_fail_under_it(after: BoxGpus | None) -> None:
    """A GPU that is lost, or a driver that tells none, explains why the profile is down."""
    profiles = ProfileLooks()
    profiles.looks(FOUND, 100.0)
    assert profiles.looks(replace(FOUND, gpus=after), 110.0)["a"].gpus == ("GPU-0",)


def test_a_profile_without_gpus_lies_on_none() -> None:
    """Nor does one that used some before its profile changed."""
    profiles = ProfileLooks()
    profiles.looks(FOUND, 100.0)
    on_cpu = {**BOX, "a": replace(BOX["a"], gpus=())}
    assert profiles.looks(replace(FOUND, catalogue=on_cpu), 110.0)["a"].gpus == ()


def test_what_cannot_be_seen_is_none() -> None:
    """Without any source a profile is known by name alone."""
    empty = Observations(view=BoxView(connected=False), is_view_fresh=False, catalogue=BOX)
    looks = ProfileLooks().looks(empty, 100.0)
    assert looks == {name: ProfileLook(name=name) for name in ("a", "b")}


def test_a_rival_that_runs_takes_the_place_of_a_profile() -> None:
    """Another model in its way is no fault of the committed one."""
    rival = replace(STOPPED, active=ActiveState.ACTIVATING)
    units = {
        RUNS.unit: UnitReading(look=replace(RUNS, active=ActiveState.INACTIVE, main_pid=0)),
        STOPPED.unit: UnitReading(look=rival),
    }
    assert ProfileLooks().looks(replace(FOUND, units=units), 100.0)["a"].desired is False


def test_time_without_cpu_is_counted_from_the_last_work() -> None:
    """An engine whose processes use no CPU between looks is idle since it last did."""
    profiles = ProfileLooks()
    idle = []
    for at_s, cpu_s in (
        (0.0, 1.0),
        (10.0, 6.0),
        (20.0, 6.1),
        (30.0, 6.2),
        (40.0, None),
        (50.0, 7.0),
    ):
        units = {RUNS.unit: UnitReading(look=RUNS, cpu_s=cpu_s)}
        idle.append(profiles.looks(replace(FOUND, units=units), at_s)["a"].idle_s)
    assert idle == [0.0, 0.0, 10.0, 20.0, None, 0.0]


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        ([10, 10, 10], None),
        ([10, 10, 11], 0.0),
        ([10, 11, 11], 10.0),
        ([10, 11, None], 10.0),
        ([None, 10, 11], 0.0),
        ([10, 5, 5], None),  # another gateway
        ([10, 5, 6], 0.0),
    ],
)
def test_answers_are_noticed_from_look_to_look(
    told: list[int | None], expected: float | None
) -> None:
    """Bytes that came between two looks count as of the second."""
    profiles = ProfileLooks()
    found = []
    for at, answer_bytes in enumerate(told):
        view = replace(VIEW, profiles={"a": replace(TOLD, answer_bytes=answer_bytes)})
        found.append(profiles.looks(replace(FOUND, view=view), 10.0 * at)["a"].answered_s)
    assert found[-1] == expected


@pytest.mark.parametrize(
    ("active", "text", "expected"),
    [
        (ActiveState.ACTIVE, "serving on :9000", True),
        (ActiveState.FAILED, patch_failure("not reported as applied: P4"), False),
        (ActiveState.FAILED, "loading", None),
        (ActiveState.ACTIVATING, "applying patches", None),
        (ActiveState.INACTIVE, patch_failure("an old text"), None),
    ],
)
def test_an_engine_that_serves_is_patched(
    *, active: ActiveState, text: str, expected: bool | None
) -> None:
    """No engine starts without proof of its patches; the wrapper says when there is none."""
    unit = replace(RUNS, active=active, status_text=text)
    found = replace(FOUND, units={RUNS.unit: UnitReading(look=unit)})
    assert ProfileLooks().looks(found, 1.0)["a"].patch_applied is expected


def test_a_mark_of_a_newer_supervisor_is_unknown() -> None:
    """A mark that this release does not know is none."""
    view = replace(VIEW, profiles={"a": replace(TOLD, mark="loud")})
    assert ProfileLooks().looks(replace(FOUND, view=view), 1.0)["a"].mark is None
