"""Rules about the box."""

from typing import Any

import pytest

from appliance.alerts.watchdog_rules.snapshot import DiskLook, WatchLook
from appliance.alerts.watchdog_rules.watchdog import findings
from appliance.alerts.watchdog_rules.watchdog_memory import WatchdogMemory
from appliance.model.alerts import AlertRule, Finding, Severity, Sign
from appliance.model.memory import GpuState
from appliance.model.names import GATEWAY_UNIT, SUPERVISOR_UNIT
from appliance.model.observed import ActiveState
from appliance.model.words import Mark
from tests.fakes.looks import GIB, box_look, later, looked, of_rule, signs_of, unit_look

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
