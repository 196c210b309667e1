"""Truth about alerts: in which situation people are told of a model, restated apart from the code."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import product
from typing import Final

from appliance.alerts.book import AlertPolicy
from appliance.alerts.evaluation import ack
from appliance.alerts.inhibition import AlertCircumstances
from appliance.alerts.round import AlertTables
from appliance.alerts.rules import findings
from appliance.alerts.silences import add_window, silence, unsilence
from appliance.alerts.watchdog_memory import WatchdogMemory
from appliance.model.alerts import AlertRule, Finding, Severity
from appliance.model.observed import ActiveState
from appliance.model.status import OperationRow
from appliance.model.words import Mark
from appliance.wire.alert_requests import PlannedWindow
from tests.fakes.alert_rounds import GENESIS, AlertRounds, bad, good
from tests.fakes.looks import box_look, profile_look

DAY: Final = AlertPolicy(time_zone="UTC", quiet_from="22:00", quiet_to="07:00")
SIESTA: Final = AlertPolicy(time_zone="UTC", quiet_from="11:00", quiet_to="18:00")
LUNCH: Final = PlannedWindow(name="lunch", begin="11:30", minutes=600)
SWITCH: Final = OperationRow(
    id=1,
    kind="switch",
    target=("genesis",),
    profiles=("genesis",),
    phase="loading",
    phase_s=5.0,
    deadline_s=600.0,
)
REMOVED: Final = "removed"


class Observed(StrEnum):
    """Observation of a model."""

    SERVING = "serving"
    DOWN = "down"
    UNSEEN = "unseen"


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """Model that is as described, and all that may keep a person from being told."""

    mark: Mark | str
    desired: bool
    observed: Observed
    severity: Severity
    acked: bool
    silenced: bool
    inhibited: bool
    window: bool
    quiet: bool
    flapping: bool
    suspended: bool

    @property
    def flags(self) -> int:
        """Return how many flags are set."""
        return sum(getattr(self, name) for name in FLAGS)

    @property
    def text(self) -> str:
        flags = [name for name in FLAGS if getattr(self, name)]
        wish = "wanted" if self.desired else "unwanted"
        return f"{self.severity} {self.mark} {wish} {self.observed} {' '.join(flags)}"


FLAGS: Final = ("acked", "silenced", "inhibited", "window", "quiet", "flapping", "suspended")


def situations() -> Iterator[Situation]:
    """Yield every situation."""
    for mark, desired, observed, severity in product(
        (*Mark, REMOVED), (True, False), Observed, Severity
    ):
        for flags in product((False, True), repeat=len(FLAGS)):
            yield Situation(
                mark=mark,
                desired=desired,
                observed=observed,
                severity=severity,
                **dict(zip(FLAGS, flags, strict=True)),
            )


def truth(situation: Situation) -> list[str]:
    """Return what a person is told of a situation within 50 s; it fired before if acked or flapping."""
    fired_before = situation.acked or situation.flapping
    is_wrong = situation.desired and (
        situation.observed is Observed.DOWN
        or (situation.observed is Observed.UNSEEN and fired_before)
    )
    is_known = fired_before or not situation.suspended
    is_held = (
        situation.mark != Mark.LIVE
        or situation.acked
        or situation.silenced
        or situation.inhibited
        or situation.window
        or situation.severity is Severity.INFO
        or (situation.quiet and situation.severity is Severity.WARNING)
    )
    if is_held or not is_known or not is_wrong:
        return []
    return ["flapping" if situation.flapping else "fired"]


def observed_findings(situation: Situation) -> Sequence[Finding]:
    """Return what the watchdog's rule finds of the model."""
    profile = profile_look(desired=situation.desired)
    if situation.observed is Observed.UNSEEN:
        profile = replace(profile, unit=None, state=None, answers=None)
    elif situation.observed is Observed.DOWN:
        assert profile.unit is not None
        unit = replace(profile.unit, active=ActiveState.FAILED, sub="failed", result="exit-code")
        profile = replace(profile, unit=unit, state="failed", answers=False)
    found, _ = findings(box_look(profile), WatchdogMemory())
    return [
        replace(each, severity=situation.severity)
        for each in found
        if each.rule is AlertRule.LIVE_DOWN and each.subject == GENESIS
    ]


def told_of(situation: Situation, found: Sequence[Finding], tables: AlertTables) -> list[str]:
    """Return what targets are told of a situation."""
    rounds = AlertRounds(tables=tables, policy=DAY)
    severity = situation.severity
    rounds.look(good())
    if situation.acked or situation.flapping:
        rounds.act(silence(rounds.book, GENESIS, 7200, "setup", "", rounds.now))
        for _ in range(2 * situation.flapping):
            rounds.look(bad(severity=severity), times=3)
            rounds.look(good(), times=2)
        rounds.look(bad(severity=severity), times=3)
        if situation.acked:
            alert = rounds.transitions[-1].alert
            rounds.act(ack(rounds.book, alert, "ana", rounds.now))
        rounds.act(unsilence(rounds.book, GENESIS, "setup", rounds.now))
    if situation.silenced:
        rounds.act(silence(rounds.book, GENESIS, 7200, "ana", "", rounds.now))
    if situation.window:
        rounds.act(add_window(rounds.book, LUNCH))
    if situation.quiet:
        rounds.policy = SIESTA
    marks = {} if situation.mark == REMOVED else {GENESIS: Mark(situation.mark)}
    rounds.circumstances = AlertCircumstances(
        marks=marks,
        existing=frozenset(marks),
        operation=SWITCH if situation.inhibited else None,
    )
    if situation.suspended:
        rounds.pass_time(600, suspended=True)
    rounds.look(*found, times=5)
    return [str(kind) for kind in rounds.told]


def table_violations(tables: AlertTables, chosen: Sequence[Situation]) -> Iterator[str]:
    """Yield the situations in which targets are told something else than the truth."""
    found: dict[tuple[object, ...], Sequence[Finding]] = {}
    for situation in chosen:
        key = situation.desired, situation.observed, situation.severity
        if key not in found:
            found[key] = observed_findings(situation)
        told = told_of(situation, found[key], tables)
        if told != truth(situation):
            yield f"{situation.text}: told {told}, not {truth(situation)}"
