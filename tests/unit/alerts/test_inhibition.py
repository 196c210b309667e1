"""Inhibition: scoped to what a cause explains, bounded in time."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from appliance.alerts.inhibition import AlertCircumstances, OwnNetwork
from appliance.alerts.silences import silence
from appliance.alerts.snapshot import BoxLook, WatchLook
from appliance.model.alerts import BOX, AlertRule, Severity, Subject, SubjectKind
from appliance.model.status import OperationRow
from appliance.model.words import Mark
from tests.fakes.alert_rounds import GENESIS, NOON_UNIX_S, AlertRounds, bad, good

AEON = Subject(kind=SubjectKind.PROFILE, name="aeon")
GPU = Subject(kind=SubjectKind.GPU, name="GPU-1")
OTHER_GPU = Subject(kind=SubjectKind.GPU, name="GPU-2")
WIKI = Subject(kind=SubjectKind.WATCH, name="wiki")
UNIT = Subject(kind=SubjectKind.WATCH, name="backup")
GPUS: Mapping[str, tuple[str, ...]] = {"genesis": ("GPU-1",), "aeon": ("GPU-2",)}


def rules_told(rounds: AlertRounds) -> set[tuple[str, AlertRule]]:
    return {
        (notice.transition.subject.name, notice.transition.rule)
        for notice in rounds.notices
        if notice.transition.kind == "fired"
    }


def operation(phase_s: float = 10.0, deadline_s: float | None = 300.0) -> OperationRow:
    return OperationRow(
        id=1,
        kind="switch",
        target=("genesis",),
        profiles=("genesis",),
        phase="loading",
        phase_s=phase_s,
        deadline_s=deadline_s,
    )


@pytest.mark.parametrize("rule", [AlertRule.LIVE_DOWN, AlertRule.NO_PROGRESS, AlertRule.CRASH_LOOP])
def test_an_operation_explains_its_own_profiles(rule: AlertRule) -> None:
    """A switch keeps symptoms of its own profile quiet, and not those of another one."""
    rounds = AlertRounds(circumstances=AlertCircumstances(operation=operation()))
    rounds.look(bad(rule), bad(rule, AEON), times=6)
    assert rules_told(rounds) == {("aeon", rule)}
    assert [each.reason for each in rounds.transitions if each.subject == GENESIS] == [
        "inhibited by operation"
    ]


@pytest.mark.parametrize(
    "rule", [AlertRule.EXPOSED, AlertRule.SWITCH_STUCK, AlertRule.CPU_FALLBACK]
)
def test_an_operation_explains_no_other_rule(rule: AlertRule) -> None:
    """A port that others reach is told during a switch too."""
    rounds = AlertRounds(circumstances=AlertCircumstances(operation=operation()))
    rounds.look(bad(rule), times=6)
    assert rules_told(rounds) == {("genesis", rule)}


@pytest.mark.parametrize(
    ("deadline_s", "bound_s"), [(300.0, 360.0), (None, 7260.0)], ids=["deadline", "progress"]
)
def test_an_operation_explains_until_its_deadline(deadline_s: float | None, bound_s: float) -> None:
    """A phase that overruns its deadline by 60 s explains nothing; one without a deadline is bounded."""
    for phase_s, expected in ((bound_s, set()), (bound_s + 1, {("genesis", AlertRule.LIVE_DOWN)})):
        rounds = AlertRounds(
            circumstances=AlertCircumstances(operation=operation(phase_s, deadline_s))
        )
        rounds.look(bad(), times=6)
        assert rules_told(rounds) == expected


def test_an_alert_that_outlives_its_cause_by_30_s_is_told() -> None:
    """After a switch the model has 30 s, then its being down is told with the time of its beginning."""
    rounds = AlertRounds(circumstances=AlertCircumstances(operation=operation()))
    rounds.look(bad(), times=6)
    rounds.circumstances = AlertCircumstances()
    rounds.look(bad(), times=3)
    assert rules_told(rounds) == set()
    rounds.look(bad())
    assert rules_told(rounds) == {("genesis", AlertRule.LIVE_DOWN)}
    assert rounds.notices[0].transition.since_unix_s == NOON_UNIX_S + 10


def test_a_cause_that_returns_within_30_s_goes_on() -> None:
    """Two operations in a row, 20 s apart, explain the time between them."""
    rounds = AlertRounds(circumstances=AlertCircumstances(operation=operation()))
    rounds.look(bad(), times=6)
    rounds.circumstances = AlertCircumstances()
    rounds.look(bad(), times=2)
    rounds.circumstances = AlertCircumstances(operation=operation())
    rounds.look(bad(), times=10)
    assert rounds.told == []


def test_a_lost_gpu_explains_the_models_on_it() -> None:
    """The loss of a GPU is told; that its model is down is not, that of another GPU is."""
    rounds = AlertRounds(circumstances=AlertCircumstances(profile_gpus=GPUS))
    lost = bad(AlertRule.GPU_LOST, GPU)
    error = bad(AlertRule.GPU_ERROR, GPU)
    rounds.look(lost, error, bad(), bad(subject=AEON), times=6)
    assert rules_told(rounds) == {("GPU-1", AlertRule.GPU_LOST), ("aeon", AlertRule.LIVE_DOWN)}


def test_a_driver_that_fails_explains_every_gpu() -> None:
    """The driver is told; GPUs and the models on them are not, a model on the CPU is."""
    circumstances = AlertCircumstances(profile_gpus={"genesis": ("GPU-1",)})
    rounds = AlertRounds(circumstances=circumstances)
    driver = bad(AlertRule.DRIVER, BOX, is_proven=True)
    lost = bad(AlertRule.GPU_LOST, OTHER_GPU)
    rounds.look(driver, lost, bad(), bad(subject=AEON), times=6)
    assert rules_told(rounds) == {("", AlertRule.DRIVER), ("aeon", AlertRule.LIVE_DOWN)}


@pytest.mark.parametrize("is_fired", [True, False])
def test_a_dead_supervisor_explains_what_only_it_tells(*, is_fired: bool) -> None:
    """Without the supervisor a stuck switch is its symptom; a model that is down is not."""
    rounds = AlertRounds(circumstances=AlertCircumstances(supervisor_down=not is_fired))
    cause = bad(AlertRule.SUPERVISOR_DOWN, BOX, is_proven=is_fired)
    stuck = bad(AlertRule.SWITCH_STUCK)
    rounds.look(cause, stuck, bad(), times=6)
    assert rules_told(rounds) == {
        ("", AlertRule.SUPERVISOR_DOWN),
        ("genesis", AlertRule.LIVE_DOWN),
    }


def test_an_outage_of_the_internet_explains_other_machines() -> None:
    """A watched URL of another machine is explained for a day, a unit of this box is not."""
    rounds = AlertRounds(
        circumstances=AlertCircumstances(
            internet_down_since=NOON_UNIX_S, remote_watches=frozenset({"wiki"})
        )
    )
    findings = bad(AlertRule.WATCH_DOWN, WIKI), bad(AlertRule.WATCH_DOWN, UNIT)
    rounds.look(*findings, times=60)
    assert rules_told(rounds) == {("backup", AlertRule.WATCH_DOWN)}
    rounds.pass_time(86400)
    rounds.look(*findings, times=10)
    assert ("wiki", AlertRule.WATCH_DOWN) in rules_told(rounds)


def test_a_crash_loop_explains_that_the_model_is_down() -> None:
    """A crash loop is the cause, and a model that is down explains that no probe is valid."""
    rounds = AlertRounds()
    rounds.look(bad(AlertRule.CRASH_LOOP), bad(), bad(AlertRule.NO_PROBE), times=6)
    assert rules_told(rounds) == {("genesis", AlertRule.CRASH_LOOP)}
    rounds = AlertRounds()
    rounds.look(bad(), times=3)
    rounds.look(bad(), bad(AlertRule.NO_PROBE), times=3)
    assert rules_told(rounds) == {("genesis", AlertRule.LIVE_DOWN)}


def test_an_alert_of_which_nobody_knows_explains_nothing() -> None:
    """The loss of a silenced GPU does not hide that the model on it is down."""
    rounds = AlertRounds(circumstances=AlertCircumstances(profile_gpus=GPUS))
    rounds.act(silence(rounds.book, GPU, 7200, "ana", "", rounds.now))
    rounds.look(bad(AlertRule.GPU_LOST, GPU), bad(), times=10)
    assert rules_told(rounds) == {("genesis", AlertRule.LIVE_DOWN)}


def test_an_alert_that_was_told_explains_on_once_it_is_silenced() -> None:
    """A silence after the message does not bring the symptoms out."""
    rounds = AlertRounds(circumstances=AlertCircumstances(profile_gpus=GPUS))
    rounds.look(bad(AlertRule.GPU_LOST, GPU))
    rounds.act(silence(rounds.book, GPU, 7200, "ana", "", rounds.now))
    rounds.look(bad(AlertRule.GPU_LOST, GPU), bad(), times=10)
    assert rules_told(rounds) == {("GPU-1", AlertRule.GPU_LOST)}


def test_a_cause_is_explained_by_its_own_cause() -> None:
    """A driver that fails explains a lost GPU, which still explains the model on it."""
    rounds = AlertRounds(circumstances=AlertCircumstances(profile_gpus=GPUS))
    driver = bad(AlertRule.DRIVER, BOX, is_proven=True)
    rounds.look(driver, bad(AlertRule.GPU_LOST, GPU), bad(), times=10)
    assert rules_told(rounds) == {("", AlertRule.DRIVER)}


def test_an_inhibited_alert_that_is_over_makes_nothing() -> None:
    """A model that is down during its switch and then serves is told to nobody, and is recorded."""
    rounds = AlertRounds(circumstances=AlertCircumstances(operation=operation()))
    rounds.look(bad(), times=6)
    rounds.look(good(), times=2)
    rounds.circumstances = replace(rounds.circumstances, operation=None)
    rounds.look(good(), times=10)
    assert rounds.told == []
    assert rounds.recorded == [("fired", False), ("resolved", False)]


def test_reminders_are_inhibited_too() -> None:
    """While an operation repairs a model nobody is reminded; one reminder comes after it."""
    rounds = AlertRounds()
    rounds.look(bad(severity=Severity.CRITICAL), times=3)
    rounds.circumstances = AlertCircumstances(operation=operation())
    rounds.look_for(3700, bad())
    assert rounds.told == ["fired"]
    rounds.circumstances = AlertCircumstances()
    rounds.look(bad(), times=10)
    assert rounds.told == ["fired", "reminded"]


def look(unix_s: float, **up: bool | None) -> BoxLook:
    watches = tuple(WatchLook(name=n, mark=Mark.LIVE, is_up=u) for n, u in up.items())
    return BoxLook(unix_s=unix_s, monotonic_s=unix_s, supervisor_answers=True, watches=watches)


@pytest.mark.parametrize(
    ("up", "is_down"),
    [
        ({"a": False, "b": False, "here": True}, True),
        ({"a": False, "b": True}, False),
        ({"a": False, "b": None}, False),
        ({"a": False}, False),
        ({"here": False}, False),
        ({}, False),
    ],
)
def test_several_services_elsewhere_are_down_at_once(
    up: dict[str, bool | None], *, is_down: bool
) -> None:
    """One cause is likelier than several at one time; a single service may be down itself."""
    network = OwnNetwork(lambda: None)
    first = network.down_since(look(100.0, **up), {"a", "b"})
    assert (first is not None) is is_down
    assert network.down_since(look(110.0, **up), {"a", "b"}) == first
    assert network.down_since(look(120.0, a=True, b=True), {"a", "b"}) is None


def test_the_heartbeat_knows_it_too() -> None:
    """The earlier of both times counts."""
    network = OwnNetwork(lambda: 50.0)
    assert network.down_since(look(100.0), {"a"}) == 50.0
    assert network.down_since(look(100.0, a=False, b=False), {"a", "b"}) == 50.0
