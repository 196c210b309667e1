"""Truth about times: when rules fire and end, what is told of an alert later, restated apart from the code.

Each check runs the state machine with any tables and yields the sentences that do not hold. With the
standard tables there are none; with an entry changed there is one.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Final

from appliance.alerts.evaluation import ack
from appliance.alerts.inhibition import AlertCircumstances
from appliance.alerts.round import AlertTables
from appliance.alerts.silences import add_window, silence
from appliance.model.alerts import AlertRule, Finding, Severity, Subject
from appliance.model.words import Mark
from tests.fakes.alert_rounds import GENESIS, AlertRounds, bad, good
from tests.property.alert_causes import subjects_of
from tests.property.alert_truth import DAY, LUNCH, SIESTA, SWITCH

TERMS: Final = {
    # rule: severity, bad looks of the last looks, seconds bad, good looks, seconds good, standby too
    "live-down": ("critical", 3, 5, 0, 2, 0, False),
    "no-progress": ("critical", 2, 3, 0, 2, 0, False),
    "crash-loop": ("critical", 1, 1, 0, 2, 900, False),
    "cpu-fallback": ("warning", 2, 2, 0, 2, 0, False),
    "slow": ("warning", 1, 1, 0, 1, 0, False),
    "quality": ("warning", 1, 1, 0, 1, 0, False),
    "no-probe": ("warning", 1, 1, 0, 1, 0, False),
    "patch": ("warning", 2, 2, 0, 2, 0, False),
    "drift": ("warning", 2, 2, 0, 2, 0, False),
    "switch-failed": ("critical", 1, 1, 0, 1, 0, False),
    "switch-stuck": ("critical", 1, 1, 0, 1, 0, True),
    "exposed": ("critical", 1, 1, 0, 2, 0, True),
    "filter-off": ("warning", 2, 2, 0, 2, 0, True),
    "foreign-holder": ("warning", 1, 1, 60, 1, 60, False),
    "unattributed-vram": ("warning", 1, 1, 600, 1, 600, False),
    "gpu-lost": ("critical", 1, 1, 0, 3, 0, False),
    "gpu-error": ("critical", 1, 1, 0, 3, 0, False),
    "gpu-recovery": ("critical", 1, 1, 0, 3, 0, False),
    "ecc": ("warning", 1, 1, 0, 3, 0, False),
    "throttle": ("warning", 1, 1, 600, 1, 600, False),
    "pcie": ("warning", 1, 1, 600, 1, 600, False),
    "driver": ("critical", 2, 3, 0, 2, 0, False),
    "disk": ("warning", 1, 1, 600, 1, 600, False),
    "supervisor-down": ("critical", 3, 5, 0, 2, 0, False),
    "gateway-down": ("critical", 3, 5, 0, 2, 0, False),
    "watch-down": ("critical", 3, 5, 0, 2, 0, False),
    "test": ("warning", 1, 1, 0, 1, 0, False),
}


def terms_violations(tables: AlertTables, rules: Iterable[AlertRule] = AlertRule) -> Iterator[str]:
    """Yield the rules that fire or resolve at other times than they should, or with another severity."""
    for rule in rules:
        severity, bad_looks, of_looks, bad_s, good_looks, good_s, standby = TERMS[rule]
        subject = subjects_of(rule)[0]
        down, well = bad(rule, subject), good(rule, subject)
        yield from _standby_violations(tables, down, standby=standby)
        rounds = AlertRounds(tables=tables, policy=DAY)
        rounds.look(well, times=6)
        fires = max(bad_looks, 1 + bad_s // 10)
        rounds.look(down, times=fires - 1)
        early = [str(kind) for kind in rounds.told]
        rounds.look(down)
        if early or rounds.told != ["fired"]:
            yield f"{rule}: told {early} after {fires - 1} looks, {rounds.told} after {fires}"
            continue
        if rounds.notices[0].transition.severity != severity:
            yield f"{rule}: severity {rounds.notices[0].transition.severity}"
        resolves = max(good_looks, 1 + good_s // 10)
        rounds.look(well, times=resolves - 1)
        early = [str(kind) for kind in rounds.told[1:]]
        rounds.look(well)
        if early or rounds.told != ["fired", "resolved"]:
            yield f"{rule}: over after {resolves - 1} looks: {early}, told {rounds.told}"
        if bad_looks > 1:
            yield from _window_violations(tables, rule, subject, (bad_looks, of_looks))


def _standby_violations(tables: AlertTables, down: Finding, *, standby: bool) -> Iterator[str]:
    """Yield what is wrong about a rule's alert of a standby model."""
    rounds = AlertRounds(tables=tables, policy=DAY)
    rounds.mark(Mark.STANDBY, down.subject)
    rounds.look(down, times=62)
    if bool(rounds.told) != standby:
        yield f"{down.rule} of a standby model: told {rounds.told}"


def _window_violations(
    tables: AlertTables, rule: AlertRule, subject: Subject, counts: tuple[int, int]
) -> Iterator[str]:
    """Yield what is wrong with a rule that counts X bad looks of Y."""
    bad_looks, of_looks = counts
    for gap in (of_looks - bad_looks, of_looks - bad_looks + 1):
        rounds = AlertRounds(tables=tables, policy=DAY)
        rounds.look(bad(rule, subject))
        rounds.look(good(rule, subject), times=gap)
        rounds.look(bad(rule, subject), times=bad_looks - 1)
        if bool(rounds.told) != (gap == of_looks - bad_looks):
            yield f"{rule}: {gap} good looks among {bad_looks} bad ones: told {rounds.told}"


def time_violations(tables: AlertTables) -> Iterator[str]:
    """Yield what is wrong about grouping, digests and the grace after a resume."""
    rounds = AlertRounds(tables=tables, policy=DAY)
    rounds.look(bad(is_proven=True))
    if rounds.notices[0].not_before_unix_s != rounds.now.unix_s + 10:
        yield "a fire does not wait 10 s for others"
    rounds = AlertRounds(tables=tables, policy=replace(SIESTA, quiet_to="12:10"))
    rounds.look_for(900, bad(AlertRule.SLOW))
    waits = [notice.not_before_unix_s - rounds.now.unix_s for notice in rounds.notices]
    if waits != [615 - 900] or not rounds.notices[0].is_digest:
        yield f"a digest waits {waits}"
    rounds = AlertRounds(tables=tables, policy=DAY)
    rounds.look(good())
    rounds.pass_time(600, suspended=True)
    rounds.look(bad(is_proven=True), times=6)
    if rounds.told:
        yield "a proven finding counts within a minute of a resume"
    rounds.look(bad(is_proven=True), times=2)
    if not rounds.told:
        yield "a proven finding does not count a minute after a resume"


def _hold(rounds: AlertRounds, hold: str) -> None:
    """Have something keep people from being told of the model, whose alert A1 fires."""
    match hold:
        case "standby":
            rounds.mark(Mark.STANDBY)
        case "acked":
            rounds.act(ack(rounds.book, "A1", "ana", rounds.now))
        case "silenced":
            rounds.act(silence(rounds.book, GENESIS, 86400, "ana", "", rounds.now))
        case "inhibited":
            rounds.circumstances = AlertCircumstances(operation=SWITCH)
        case "window":
            rounds.act(add_window(rounds.book, LUNCH))
        case "quiet":
            rounds.policy = SIESTA
        case _:
            pass


HOLDS: Final = {
    # what of an alert that was told and then held: a rise of its severity, reminders
    "nothing": (["changed"], True),
    "acked": (["changed"], False),
    "quiet": (["changed"], True),
    "standby": ([], False),
    "silenced": ([], False),
    "inhibited": ([], False),
    "window": ([], False),
}


def later_violations(tables: AlertTables) -> Iterator[str]:
    """Yield what is wrong once an alert was told, and then something keeps people from being told."""
    for hold, (rise, reminds) in HOLDS.items():
        rounds = AlertRounds(tables=tables, policy=DAY)
        rounds.look(bad(severity=Severity.WARNING), times=3)
        _hold(rounds, hold)
        rounds.look(bad(), times=3)
        rounds.look(good(), times=3)
        if rounds.told != ["fired", *rise, "resolved"]:
            yield f"rise and end of a told alert, {hold}: told {rounds.told}"
        rounds = AlertRounds(tables=tables, policy=DAY)
        rounds.look(bad(), times=3)
        _hold(rounds, hold)
        rounds.look(bad(), times=75, every_s=50.0)
        if rounds.told != ["fired", *["reminded"] * reminds]:
            yield f"an hour later, {hold}: told {rounds.told}"


def reminder_violations(tables: AlertTables) -> Iterator[str]:
    """Yield what is wrong about the times of reminders."""
    rounds = AlertRounds(tables=tables, policy=DAY)
    rounds.look(bad(), times=3)
    begun_unix_s = rounds.now.unix_s
    rounds.look(bad(), times=25 * 72, every_s=50.0)
    reminders = [each for each in rounds.transitions if each.kind == "reminded"]
    hours = [(each.unix_s - begun_unix_s) / 3600 for each in reminders]
    if hours != [1, 4, 12, 24]:
        yield f"reminders after {hours} h"


def flapping_violations(tables: AlertTables) -> Iterator[str]:
    """Yield what is wrong about alerts that come and go."""
    rounds = AlertRounds(tables=tables, policy=DAY)
    for _ in range(6):
        rounds.look(bad(), times=6)
        rounds.look(good(), times=6)
    rounds.look_for(1700, good())
    told = [str(kind) for kind in rounds.told]
    if told != ["fired", "resolved", "fired", "flapping"]:
        yield f"flapping: told {told}"
    rounds.look_for(200, good())
    if [str(kind) for kind in rounds.told[4:]] != ["resolved"]:
        yield f"end of flapping: told {rounds.told[4:]}"
    rounds = AlertRounds(tables=tables, policy=DAY)
    for _ in range(40):
        rounds.look(bad(severity=Severity.WARNING), times=6)
        rounds.look(good(), times=6)
    rounds.look(bad(), times=6)
    if len(rounds.told) != len(told):
        yield f"rise while it flaps: told {rounds.told}"
    rounds = AlertRounds(tables=tables, policy=DAY)
    for _ in range(40):
        rounds.look(bad(), times=6)
        rounds.look(good(), times=6)
    if len(rounds.told) != len(told):
        yield f"an hour of flapping: told {rounds.told}"
