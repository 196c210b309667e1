"""Rules about the box."""

from typing import Any

import pytest

from appliance.alerts.rules import findings
from appliance.alerts.snapshot import DiskLook, WatchLook
from appliance.alerts.watchdog_memory import WatchdogMemory
from appliance.model.alerts import AlertRule, Finding, Severity, Sign
from appliance.model.memory import GpuState
from appliance.model.names import GATEWAY_UNIT, SUPERVISOR_UNIT
from appliance.model.observed import ActiveState
from appliance.model.status import EndedOperationRow, OperationRow
from appliance.model.words import Mark
from tests.fakes.looks import (
    GIB,
    NOW,
    box_look,
    later,
    looked,
    of_rule,
    profile_look,
    signs_of,
    unit_look,
)

GOOD, BAD, UNKNOWN = Sign.GOOD, Sign.BAD, Sign.UNKNOWN


def found(rule: AlertRule, *looks: Any, memory: WatchdogMemory | None = None) -> Finding:
    return of_rule(looked(looks, memory), rule)["box"]


FAILED_GATEWAY = unit_look(GATEWAY_UNIT, active=ActiveState.FAILED, result="exit-code")


@pytest.mark.parametrize(
    ("rule", "changes", "sign", "command"),
    [
        (AlertRule.SUPERVISOR_DOWN, {}, GOOD, ""),
        (AlertRule.SUPERVISOR_DOWN, {"supervisor": None}, GOOD, ""),
        (
            AlertRule.SUPERVISOR_DOWN,
            {"supervisor_answers": False},
            BAD,
            "sudo systemctl start appliance-supervisor",
        ),
        (
            AlertRule.SUPERVISOR_DOWN,
            {"supervisor_answers": False, "supervisor": None},
            BAD,
            "sudo systemctl start appliance-supervisor",
        ),
        (AlertRule.GATEWAY_DOWN, {}, GOOD, ""),
        (AlertRule.GATEWAY_DOWN, {"gateway": None}, GOOD, ""),
        (AlertRule.GATEWAY_DOWN, {"gateway_answers": None}, UNKNOWN, ""),
        (
            AlertRule.GATEWAY_DOWN,
            {"gateway_answers": None, "gateway": FAILED_GATEWAY},
            BAD,
            "sudo systemctl restart appliance-gateway",
        ),
        (
            AlertRule.GATEWAY_DOWN,
            {"gateway_answers": False},
            BAD,
            "sudo systemctl restart appliance-gateway",
        ),
    ],
)
def test_daemon_that_does_not_answer_is_down(
    rule: AlertRule, changes: dict[str, Any], sign: Sign, command: str
) -> None:
    """A daemon's own answer says so, or systemd."""
    one = found(rule, box_look(**changes))
    assert (one.sign, one.command) == (sign, command)


@pytest.mark.parametrize(
    ("rule", "field", "unit"),
    [
        (AlertRule.SUPERVISOR_DOWN, "supervisor", SUPERVISOR_UNIT),
        (AlertRule.GATEWAY_DOWN, "gateway", GATEWAY_UNIT),
    ],
)
@pytest.mark.parametrize(("restarts", "sign"), [(2, GOOD), (3, BAD)])
def test_daemon_in_a_crash_loop_is_down(
    rule: AlertRule, field: str, unit: str, restarts: int, sign: Sign
) -> None:
    """A daemon that answers between two crashes is told all the same, by its restarts."""
    looks = [
        later(box_look(**{field: unit_look(unit, restarts=count)}), 10.0 * count)
        for count in range(restarts + 1)
    ]
    one = found(rule, *looks)
    assert one.sign is sign
    if sign is BAD:
        assert one.fact == f"{field} in a crash loop: 3 restarts in 10 min"
        assert one.details[0] == f"{unit}: active (success)"
        assert one.command == f"journalctl -u appliance-{field} -n 50"


def seen() -> WatchdogMemory:
    """Memory of a box whose GPU has been seen."""
    return findings(box_look(), WatchdogMemory())[1]


@pytest.mark.parametrize(
    ("state", "first", "after_seen", "severity"),
    [
        (None, UNKNOWN, UNKNOWN, None),
        (GpuState.OK, GOOD, GOOD, None),
        (GpuState.LOST, GOOD, GOOD, None),
        (GpuState.READER, UNKNOWN, UNKNOWN, None),
        ("of another release", UNKNOWN, UNKNOWN, None),
        (GpuState.NO_DRIVER, GOOD, BAD, Severity.CRITICAL),
        (GpuState.NO_LIBRARY, GOOD, BAD, Severity.CRITICAL),
        (GpuState.MISMATCH, BAD, BAD, Severity.WARNING),
        (GpuState.HUNG, BAD, BAD, Severity.CRITICAL),
        (GpuState.DEVICE, BAD, BAD, Severity.CRITICAL),
    ],
)
def test_driver_that_does_not_work_is_told(
    state: str | None, first: Sign, after_seen: Sign, severity: Severity | None
) -> None:
    """A box without a driver is well, unless its GPUs have been seen before."""
    look = box_look(gpus=None, gpu_state=state, gpu_problem="NVML error 18")
    assert found(AlertRule.DRIVER, look).sign is first
    one = found(AlertRule.DRIVER, look, memory=seen())
    assert (one.sign, one.severity) == (after_seen, severity)
    if after_seen is BAD:
        assert one.details[0] == "NVML error 18"


@pytest.mark.parametrize(
    ("state", "fact"),
    [
        (GpuState.HUNG, "the GPU driver does not answer"),
        (GpuState.DEVICE, "the GPU driver reports a failure"),
        (GpuState.NO_DRIVER, "the GPU driver is missing"),
        (GpuState.MISMATCH, "GPU driver and library differ after an upgrade: reboot needed"),
    ],
)
def test_words_of_a_driver(state: GpuState, fact: str) -> None:
    """The fact says what the driver does."""
    look = box_look(gpus=None, gpu_state=state.value)
    assert found(AlertRule.DRIVER, look, memory=seen()).fact == fact


def disk(free_gib: float, total_gib: float, path: str = "/var") -> DiskLook:
    return DiskLook(path=path, free_bytes=int(free_gib * GIB), total_bytes=int(total_gib * GIB))


@pytest.mark.parametrize(
    ("disks", "stores", "sign"),
    [
        ((disk(80, 100),), (), GOOD),
        ((), (), UNKNOWN),
        ((disk(4.9, 2000),), (), BAD),
        ((disk(5, 2000),), (), GOOD),
        ((disk(2.5, 50),), (), GOOD),
        ((disk(2.4, 50),), (), BAD),
        ((disk(6, 2000),), (), GOOD),  # less than 5 %, and room for months
        ((disk(4, 20),), (), GOOD),  # a fifth of a small disk
        ((disk(0.9, 20),), (), BAD),
        ((disk(0, 0),), (), GOOD),  # a file system without a size
        ((disk(80, 100), disk(1, 100, "/run")), (), BAD),
        ((disk(80, 100),), ("measurements: disk full",), BAD),
        ((), ("measurements: disk full",), BAD),
    ],
)
def test_disk_without_room_is_told(
    disks: tuple[DiskLook, ...], stores: tuple[str, ...], sign: Sign
) -> None:
    """Little room is less than 5 % and than 5 GiB; a store that takes no rows is as bad."""
    assert found(AlertRule.DISK, box_look(disks=disks, stores=stores)).sign is sign


def test_words_of_a_full_disk() -> None:
    """The disk with the least room is named, else the store."""
    one = found(AlertRule.DISK, box_look(disks=(disk(2, 100, "/run"), disk(1, 100))))
    assert (one.fact, one.command) == ("disk nearly full: 1.0 GiB free at /var", "df -h /var")
    store = found(AlertRule.DISK, box_look(stores=("measurements: damaged",)))
    assert (store.fact, store.details) == ("a store takes no rows", ("measurements: damaged",))
    assert store.command == "appliance status"


@pytest.mark.parametrize(("is_up", "sign"), [(True, GOOD), (False, BAD), (None, UNKNOWN)])
@pytest.mark.parametrize(("detail", "fact"), [("status 503", "down: status 503"), ("", "down")])
def test_watched_service_that_is_down_is_told(
    *, is_up: bool | None, sign: Sign, detail: str, fact: str
) -> None:
    """Each entry of the settings has a finding of its own, whatever its mark is."""
    watches = (
        WatchLook(name="wiki", mark=Mark.RETIRED, is_up=is_up, detail=detail),
        WatchLook(name="proxy", mark=Mark.LIVE, is_up=True),
    )
    told = looked([box_look(watches=watches)])
    signs = signs_of(told, AlertRule.WATCH_DOWN)
    assert signs == {"watch:wiki": sign, "watch:proxy": GOOD}
    if sign is BAD:
        assert of_rule(told, AlertRule.WATCH_DOWN)["watch:wiki"].fact == fact


FAILED = EndedOperationRow(
    id=9,
    kind="switch",
    target=("aeon",),
    outcome="rolled-back",
    failed=True,
    finished_unix_s=NOW - 5,
    message="aeon: no VRAM came back; genesis serves again",
)
DONE = FAILED.replaced(outcome="done", failed=False)
STUCK = OperationRow(
    id=9,
    kind="switch",
    target=("aeon",),
    profiles=("aeon", "genesis"),
    phase="release",
    phase_s=61.0,
    deadline_s=60.0,
)


@pytest.mark.parametrize(
    ("last", "genesis", "aeon", "box"),
    [
        (None, UNKNOWN, UNKNOWN, UNKNOWN),
        (DONE, GOOD, GOOD, GOOD),
        (FAILED, UNKNOWN, BAD, UNKNOWN),
        (FAILED.replaced(target=("removed",)), UNKNOWN, UNKNOWN, BAD),
        (FAILED.replaced(target=()), UNKNOWN, UNKNOWN, BAD),
        (FAILED.replaced(kind="repair"), UNKNOWN, UNKNOWN, UNKNOWN),
        (DONE.replaced(kind="hold"), UNKNOWN, UNKNOWN, UNKNOWN),
        (DONE.replaced(kind="restart"), GOOD, GOOD, GOOD),
        (FAILED.replaced(finished_unix_s=NOW - 86_400), UNKNOWN, UNKNOWN, UNKNOWN),
        (DONE.replaced(finished_unix_s=NOW - 86_400), GOOD, GOOD, GOOD),
    ],
)
def test_failed_switch_lasts_until_the_next_success(
    last: EndedOperationRow | None, genesis: Sign, aeon: Sign, box: Sign
) -> None:
    """A failure is its target's; a start that succeeded, of any profile, ends all of them."""
    look = box_look(profile_look(), profile_look("aeon", mark=Mark.STANDBY), last_operation=last)
    assert signs_of(looked([look]), AlertRule.SWITCH_FAILED) == {
        "box": box,
        "profile:genesis": genesis,
        "profile:aeon": aeon,
    }


@pytest.mark.parametrize(
    ("mark", "severity"),
    [
        (Mark.LIVE, Severity.CRITICAL),
        (None, Severity.CRITICAL),
        (Mark.STANDBY, Severity.WARNING),
    ],
)
def test_failed_switch_is_critical_if_its_target_is_live(
    mark: Mark | None, severity: Severity
) -> None:
    """The words say what was tried, and how it ended."""
    look = box_look(profile_look("aeon", mark=mark), last_operation=FAILED)
    one = of_rule(looked([look]), AlertRule.SWITCH_FAILED)["profile:aeon"]
    assert (one.severity, one.fact) == (severity, "switch failed: rolled-back")
    assert (one.details, one.command) == ((FAILED.message,), "appliance logs aeon")
    assert one.since_unix_s == NOW - 5


def test_failure_of_a_removed_target_is_the_box_s() -> None:
    """Without a profile the box has the alert, as a warning."""
    look = box_look(last_operation=FAILED.replaced(target=("removed",)))
    one = of_rule(looked([look]), AlertRule.SWITCH_FAILED)["box"]
    assert (one.severity, one.command) == (Severity.WARNING, "appliance operations")


def stuck(**changes: Any) -> Finding:
    found = of_rule(looked([box_look(**changes)]), AlertRule.SWITCH_STUCK)
    assert set(found) == {"box"}
    return found["box"]


@pytest.mark.parametrize(
    ("operation", "sign"),
    [
        (None, GOOD),
        (STUCK, BAD),
        (STUCK.replaced(phase_s=60.0), GOOD),
        (STUCK.replaced(deadline_s=None), GOOD),
    ],
)
def test_phase_that_overruns_is_stuck(operation: OperationRow | None, sign: Sign) -> None:
    """A phase with a deadline must end by it; a load that makes progress has none."""
    assert stuck(operation=operation).sign is sign


def test_nobody_knows_operations_without_the_supervisor() -> None:
    """An old status does not say how long a phase takes."""
    assert stuck(operation=STUCK, supervisor_answers=False).sign is UNKNOWN


@pytest.mark.parametrize(
    ("target", "fact"),
    [("aeon", "switch to aeon is stuck in release"), ("", "switch is stuck in release")],
)
def test_words_of_a_stuck_switch(target: str, fact: str) -> None:
    """The fact names the phase, the details its time."""
    one = stuck(operation=STUCK.replaced(target=(target,) if target else ()))
    assert one.fact == fact
    assert one.details == ("in this phase for 61.0 s, of at most 60.0 s",)
    assert (one.command, one.since_unix_s) == ("appliance cancel", NOW - 61)
