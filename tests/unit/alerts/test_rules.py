"""Registry of the watchdog's rules: complete, and silent where all is well or nothing is known."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from math import isinf
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.alerts.book import AlertPolicy
from appliance.alerts.inhibition import circumstances
from appliance.alerts.rule import EndedBy, JudgedReading, Rule, Since, profile_subject
from appliance.alerts.rules import RULES, findings
from appliance.alerts.snapshot import (
    BoxLook,
    DiskLook,
    GpuError,
    GpuHolder,
    GpuLook,
    ProfileLook,
    ReadingKind,
    UnitLook,
    WatchLook,
)
from appliance.alerts.watchdog_memory import WatchdogMemory
from appliance.model.alerts import (
    BOX,
    AlertRule,
    Severity,
    Sign,
    Subject,
    SubjectKind,
    TransitionKind,
)
from appliance.model.observed import ActiveState
from appliance.model.speeds import SeriesSpeed
from appliance.model.status import EndedOperationRow, OperationRow
from appliance.model.words import Mark, Series
from appliance.wire.helpers import Listener
from appliance.wire.typed_json import from_json
from tests.fakes.alert_rounds import GENESIS, AlertRounds, bad, good
from tests.fakes.looks import (
    NOW,
    STARTED_S,
    box_look,
    gpu_look,
    later,
    looked,
    profile_look,
    speed_look,
    unit_look,
)

UNIT: Final = "appliance-backend-genesis.service"
JUDGED = [rule for rule in AlertRule if rule is not AlertRule.TEST]
"""Rules that judge something: an operator fires the other one."""
TOLD_BY_A_LOOK = frozenset({AlertRule.SUPERVISOR_DOWN, AlertRule.SWITCH_STUCK})
"""Rules that know from any look whether the supervisor answers, and so whether an operation runs."""


def test_every_rule_is_in_the_registry_once() -> None:
    """The registry has the rules of the domain, in their order, each with a source."""
    assert list(RULES) == list(AlertRule)
    assert all(one.rule is rule and one.source for rule, one in RULES.items())


def test_all_rules_call_a_well_box_well() -> None:
    """Every rule has a subject on a box with everything, and finds it good."""
    found = looked([box_look()])
    assert {one.rule for one in found} == set(JUDGED)
    assert {one.sign for one in found} == {Sign.GOOD}


def test_nothing_known_is_neither_good_nor_bad() -> None:
    """A look in which nothing could be observed finds everything unknown."""
    profile = ProfileLook(name="genesis", unit=UnitLook(unit="appliance-backend-genesis.service"))
    look = BoxLook(
        unix_s=NOW,
        monotonic_s=STARTED_S,
        supervisor_answers=True,
        profiles={"genesis": profile, "aeon": ProfileLook(name="aeon")},
        gpus=(GpuLook(uuid="GPU-1", index=0), GpuLook(uuid="", index=1)),
    )
    unseen = BoxLook(unix_s=NOW, monotonic_s=STARTED_S, supervisor_answers=True)
    for found in (looked([look, later(look, 30)]), looked([unseen])):
        signs = {one.rule: one.sign for one in found if one.subject.name != "genesis"}
        assert {rule for rule, sign in signs.items() if sign is not Sign.UNKNOWN} == TOLD_BY_A_LOOK


def test_memory_survives_as_json() -> None:
    """The memory after a look is read back as it was."""
    _, memory = findings(box_look(), WatchdogMemory())
    assert from_json(WatchdogMemory, json.loads(json.dumps(asdict(memory)))) == memory


# ── Every rule is missed ────────────────────────────────────────────────────

LOSS: Final = SeriesSpeed(series=Series.DECODE, phase="regressed", rate=27.1, baseline=41.0)
OPERATION: Final = OperationRow(
    id=9,
    kind="switch",
    target=("genesis",),
    profiles=("genesis",),
    phase="stop",
    phase_s=100.0,
    deadline_s=90.0,
)
FAILURE: Final = EndedOperationRow(
    id=8, kind="switch", target=("genesis",), outcome="failed", failed=True, finished_unix_s=NOW
)
EVERYBODY: Final = Listener(address="::", port=8022, pid=1, process="vllm", unit=UNIT)
INCIDENTS: Final[Mapping[AlertRule, Sequence[BoxLook]]] = {
    AlertRule.LIVE_DOWN: [
        box_look(profile_look(unit=unit_look(UNIT, active=ActiveState.FAILED))),
    ],
    AlertRule.NO_PROGRESS: [
        box_look(profile_look(in_flight=1, quiet_s=60.0, idle_s=60.0), gpus=()),
    ],
    AlertRule.CRASH_LOOP: [
        box_look(),
        later(box_look(profile_look(unit=unit_look(UNIT, restarts=3))), 10),
    ],
    AlertRule.CPU_FALLBACK: [box_look(profile_look(is_on_gpu=False))],
    AlertRule.SLOW: [box_look(profile_look(speed=speed_look(series=(LOSS,))))],
    AlertRule.QUALITY: [box_look(profile_look(quality_lost=True))],
    AlertRule.NO_PROBE: [box_look(profile_look(speed=speed_look(silence="none in 6 h")))],
    AlertRule.PATCH: [box_look(profile_look(patch_applied=False))],
    AlertRule.DRIFT: [box_look(profile_look(drift=("+Nice=5",)))],
    AlertRule.SWITCH_FAILED: [box_look(last_operation=FAILURE)],
    AlertRule.SWITCH_STUCK: [box_look(operation=OPERATION)],
    AlertRule.EXPOSED: [box_look(listeners=(EVERYBODY,))],
    AlertRule.FILTER_OFF: [box_look(profile_look(unit=unit_look(UNIT, is_filtered=False)))],
    AlertRule.FOREIGN_HOLDER: [
        box_look(
            gpus=(
                gpu_look(
                    holders=(GpuHolder(pid=7, name="python3", user="ana", held_bytes=9 << 30),)
                ),
            )
        ),
    ],
    AlertRule.UNATTRIBUTED: [box_look(gpus=(gpu_look(unattributed_bytes=9 << 30),))],
    AlertRule.GPU_LOST: [box_look(gpus=(gpu_look(is_lost=True),))],
    AlertRule.GPU_ERROR: [box_look(gpus=(gpu_look(errors=(GpuError(xid=31, unix_s=NOW),)),))],
    AlertRule.GPU_RECOVERY: [box_look(gpus=(gpu_look(recovery_action="gpu-reset"),))],
    AlertRule.ECC: [box_look(gpus=(gpu_look(remap_pending=True),))],
    AlertRule.THROTTLE: [box_look(gpus=(gpu_look(throttle_reasons=("hw_thermal_slowdown",)),))],
    AlertRule.PCIE: [box_look(), later(box_look(gpus=(gpu_look(pcie_width=4),)), 30)],
    AlertRule.DRIVER: [box_look(gpu_state="hung")],
    AlertRule.DISK: [box_look(disks=(DiskLook(path="/", free_bytes=1, total_bytes=9 << 30),))],
    AlertRule.SUPERVISOR_DOWN: [box_look(supervisor_answers=False)],
    AlertRule.GATEWAY_DOWN: [box_look(gateway_answers=False)],
    AlertRule.WATCH_DOWN: [box_look(watches=(WatchLook(name="a", mark=Mark.LIVE, is_up=False),))],
}
"""Looks of one incident for every rule, and of no other."""


def missed(rules: Sequence[Rule]) -> set[AlertRule]:
    """Return the rules whose incident these rules do not find, or that another one finds too."""
    wrong = set()
    for rule, looks in INCIDENTS.items():
        memory, bad = WatchdogMemory(), []
        for look in looks:
            found, memory = findings(look, memory, rules=rules)
            bad = [one for one in found if one.sign is Sign.BAD]
        if [one.rule for one in bad] != [rule]:
            wrong.add(rule)
    return wrong


def test_every_incident_is_found_by_its_rule_alone() -> None:
    """One incident is one finding: rules do not tell of each other's."""
    assert set(INCIDENTS) == set(JUDGED)
    assert missed(list(RULES.values())) == set()


@pytest.mark.parametrize("rule", JUDGED)
def test_registry_without_a_rule_misses_its_incident(rule: AlertRule) -> None:
    """A rule that is taken out of the registry is missed by the test above, and by no other rule's."""
    assert missed([one for one in RULES.values() if one.rule is not rule]) == {rule}


@pytest.mark.parametrize("rule", JUDGED)
def test_fact_fits_into_a_title(rule: AlertRule) -> None:
    """Facts are one line of at most 80 characters, lines of 160; there is a command to type."""
    (one,) = [one for one in looked(INCIDENTS[rule]) if one.sign is Sign.BAD]
    assert 0 < len(one.fact) <= 80
    assert not one.fact.endswith("…")
    assert all(0 < len(line) <= 160 for line in one.details)
    assert "\n" not in "".join((one.fact, *one.details, one.likely, one.command))


def test_texts_of_others_cannot_break_a_message() -> None:
    """Names and notes from outside are cut, and lose their control characters."""
    note = "a\x1b[31m" + "b" * 10_000_000
    unit = unit_look(UNIT, active=ActiveState.FAILED)
    found = looked([box_look(profile_look(unit=unit, state="x\n" * 1000, note=note))])
    (one,) = [one for one in found if one.sign is Sign.BAD]
    assert (one.likely[:10], len(one.likely)) == ("a\\x1b[31mbb"[:10], 160)
    assert (len(one.fact), "\n" in one.fact) == (80, False)
    for length, is_whole in ((80, True), (81, False)):
        word = "x" * (length - len("down: "))
        found = looked([box_look(profile_look(unit=unit, state=word))])
        (one,) = [one for one in found if one.sign is Sign.BAD]
        assert (one.fact == f"down: {word}") is is_whole


# ── Noise ───────────────────────────────────────────────────────────────────

share = st.floats(0.0, 1.0)
quiet_profile = st.builds(
    profile_look,
    mark=st.sampled_from([*Mark, None]),
    desired=st.booleans(),
    in_flight=st.integers(0, 64),
    quiet_s=st.none() | st.floats(0.0, 900.0),
    idle_s=st.floats(0.0, 29.0),
    answers=st.sampled_from([True, None]),
    held_bytes=st.none() | st.integers(0, 200 << 20),
)
quiet_gpu = st.builds(
    gpu_look,
    busy_share=share,
    memory_busy_share=st.none() | st.floats(0.02, 1.0),
    power_w=st.none() | st.floats(20.0, 350.0),
    temperature_c=st.integers(20, 95),
    throttle_reasons=st.none()
    | st.lists(
        st.sampled_from(["gpu_idle", "applications_clocks_setting", "sw_power_cap", "sync_boost"])
    ).map(tuple),
    holders=st.lists(
        st.builds(
            GpuHolder,
            pid=st.integers(1, 9),
            name=st.sampled_from(["Xorg", "gnome-shell"]),
            user=st.just("ana"),
            held_bytes=st.none() | st.integers(0, 4 << 30),
        )
    ).map(tuple),
    unattributed_bytes=st.integers(0, 1 << 29),
    errors=st.lists(
        st.builds(GpuError, xid=st.sampled_from([43, 45, 63, 154]), unix_s=st.floats(0, NOW))
    ).map(tuple),
)
quiet_look = st.builds(
    lambda profile, gpu, held: box_look(profile, gpus=(gpu,), hold=held),
    quiet_profile,
    quiet_gpu,
    st.booleans(),
)


@given(st.lists(quiet_look, min_size=1, max_size=8))
def test_noise_of_a_well_box_finds_nothing(looks: list[BoxLook]) -> None:
    """Loads, temperatures, clocks and desktops come and go without a finding."""
    timed = [later(look, 10.0 * n) for n, look in enumerate(looks)]
    assert [one for one in looked(timed) if one.sign is Sign.BAD] == []


@given(quiet_look, st.sampled_from(JUDGED))
def test_incident_is_found_in_noise(look: BoxLook, rule: AlertRule) -> None:
    """An incident is found at its look, whatever the box did before."""
    first = later(look, -30.0)
    assert rule in {one.rule for one in looked([first, *INCIDENTS[rule]]) if one.sign is Sign.BAD}


def test_other_profiles_do_not_hide_one() -> None:
    """Each profile is judged by itself."""
    failed = profile_look(unit=unit_look(UNIT, active=ActiveState.FAILED))
    others = [profile_look(f"p{n}", mark=Mark.STANDBY, desired=False) for n in range(5)]
    found = looked([box_look(*others, replace(failed, name="genesis"))])
    assert [one.subject.name for one in found if one.sign is Sign.BAD] == ["genesis"]


# ── Who is told ─────────────────────────────────────────────────────────────


def test_circumstances_are_those_of_the_look() -> None:
    """Marks, operation and GPUs of a look decide who is told; an unknown mark is left out."""
    watches = (
        WatchLook(name="wiki", mark=Mark.STANDBY, is_up=True, host="nas.example"),
        WatchLook(name="proxy", mark=Mark.LIVE, is_up=True, host="127.0.0.1"),
        WatchLook(name="front", mark=Mark.LIVE, is_up=True, host="localhost"),
        WatchLook(name="sshd", mark=Mark.RETIRED, is_up=True),
    )
    profiles = (profile_look(), profile_look("aeon", mark=None, gpus=()))
    found = circumstances(
        box_look(*profiles, watches=watches, operation=OPERATION, supervisor_answers=False)
    )
    names = {Subject(kind=SubjectKind.WATCH, name=one.name): one.mark for one in watches}
    assert found.marks == names | {profile_subject("genesis"): Mark.LIVE}
    existing = frozenset({*names, profile_subject("genesis"), profile_subject("aeon")})
    assert found.existing == existing
    assert (found.operation, found.supervisor_down) == (OPERATION, True)
    assert found.internet_down_since is None
    assert found.remote_watches == {"wiki"}
    assert found.profile_gpus == {"genesis": ("GPU-1",), "aeon": ()}


def test_no_profile_says_nothing_about_which_exist() -> None:
    """A catalogue that could not be read cancels no alert."""
    assert circumstances(replace(box_look(), profiles={})).existing is None


OWN: Final = frozenset({ReadingKind.ANSWER, ReadingKind.PROBE, ReadingKind.CANARIES})
"""Readings of one profile."""
OF_ENGINES: Final = [rule for rule in JUDGED if EndedBy.STOP in RULES[rule].ends]
ENDED_BY_BOOT: Final = [rule for rule in JUDGED if EndedBy.BOOT in RULES[rule].ends]
EVIDENCE: Final = [(rule, one) for rule in JUDGED for one in RULES[rule].judged_by]
TERMS: Final[Mapping[AlertRule, tuple[float | None, int]]] = {
    AlertRule.LIVE_DOWN: (60, 3),
    AlertRule.NO_PROGRESS: (30, 2),
    AlertRule.CRASH_LOOP: (30, 1),
    AlertRule.CPU_FALLBACK: (60, 2),
    AlertRule.SLOW: (None, 1),
    AlertRule.QUALITY: (None, 1),
    AlertRule.NO_PROBE: (30, 1),
    AlertRule.PATCH: (30, 2),
    AlertRule.DRIFT: (60, 2),
    AlertRule.SWITCH_FAILED: (30, 1),
    AlertRule.SWITCH_STUCK: (30, 1),
    AlertRule.EXPOSED: (45, 1),
    AlertRule.FILTER_OFF: (30, 2),
    AlertRule.FOREIGN_HOLDER: (60, 1),
    AlertRule.UNATTRIBUTED: (60, 1),
    AlertRule.GPU_LOST: (60, 1),
    AlertRule.GPU_ERROR: (60, 1),
    AlertRule.GPU_RECOVERY: (60, 1),
    AlertRule.ECC: (60, 1),
    AlertRule.THROTTLE: (60, 1),
    AlertRule.PCIE: (60, 1),
    AlertRule.DRIVER: (60, 2),
    AlertRule.DISK: (30, 1),
    AlertRule.SUPERVISOR_DOWN: (30, 3),
    AlertRule.GATEWAY_DOWN: (30, 3),
    AlertRule.WATCH_DOWN: (None, 3),
}
"""Age of the reading that decides, in seconds (None: its own schedule bounds it), and bad looks to fire."""


def read_at(look: BoxLook, reading: ReadingKind, at_s: float) -> BoxLook:
    """Return a look one of whose readings was made at a time."""
    if reading is ReadingKind.WATCH:
        return replace(look, watches=tuple(replace(one, read_s=at_s) for one in look.watches))
    if reading not in OWN:
        return replace(look, read_s={**look.read_s, reading: at_s})
    return with_profiles(look, read_s={reading: at_s})


def with_profiles(look: BoxLook, **changes: object) -> BoxLook:
    """Return a look each of whose profiles has these changes."""
    profiles = {name: replace(one, **changes) for name, one in look.profiles.items()}  # type: ignore[arg-type]
    return replace(look, profiles=profiles)


def signs(rule: AlertRule, *looks: BoxLook) -> set[Sign]:
    """Return the signs of a rule at the last of some looks."""
    memory, found = WatchdogMemory(), set()
    for look in looks:
        judged, memory = findings(look, memory)
        found = {one.sign for one in judged if one.rule is rule}
    return found


def looked_at(rule: AlertRule, looks: list[BoxLook]) -> AlertRounds:
    """Return the alert book after looks, each 10 s after the one before; only one rule is judged."""
    rounds, memory = AlertRounds(), WatchdogMemory()
    for look in looks:
        judged, memory = findings(look, memory)
        rounds.look(*(one for one in judged if one.rule is rule))
    return rounds


def incident(rule: AlertRule) -> tuple[list[BoxLook], BoxLook]:
    """Return the looks before an incident, and the look that finds it."""
    *before, last = INCIDENTS[rule]
    return list(before), last


def test_every_rule_says_how_old_and_how_often() -> None:
    """Age and looks of each rule stand here once more, so that a new rule is thought about."""
    assert set(TERMS) == set(JUDGED)
    found = {}
    for rule in JUDGED:
        terms = RULES[rule]
        oldest_s = terms.judged_by[0].oldest_s
        found[rule] = (None if isinf(oldest_s) else oldest_s, terms.bad_looks)
    assert found == TERMS


@pytest.mark.parametrize(("rule", "evidence"), EVIDENCE, ids=str)
def test_no_rule_judges_by_an_old_reading(rule: AlertRule, evidence: JudgedReading) -> None:
    """A reading that is too old tells neither good nor bad; one that is as old as it may be does."""
    if isinf(evidence.oldest_s):
        return
    before, last = incident(rule)
    young = read_at(last, evidence.reading, last.monotonic_s - evidence.oldest_s)
    old = read_at(last, evidence.reading, last.monotonic_s - evidence.oldest_s - 1)
    assert Sign.BAD in signs(rule, *before, young)
    assert signs(rule, *before, old) == {Sign.UNKNOWN}


@pytest.mark.parametrize(("rule", "evidence"), EVIDENCE, ids=str)
def test_no_rule_judges_an_engine_by_what_was_read_before_its_start(
    rule: AlertRule, evidence: JudgedReading
) -> None:
    """A reading of an earlier process, or of the time of an operation, tells neither good nor bad."""
    before, last = incident(rule)
    read_s = last.monotonic_s - 1
    earlier = read_at(last, evidence.reading, read_s)
    if evidence.since is Since.EVER:
        return
    begun, same = earlier, read_at(last, evidence.reading, last.monotonic_s)
    if evidence.since is Since.START:
        begun = with_profiles(earlier, began_s=read_s + 0.5)
        same = with_profiles(earlier, began_s=read_s - 0.5)
    else:
        before = [*before, later(box_look(operation=OPERATION), -0.5)]
    assert signs(rule, *before, begun) == {Sign.UNKNOWN}
    assert Sign.BAD in signs(rule, *before, same)


@pytest.mark.parametrize("rule", [rule for rule in JUDGED if RULES[rule].bad_looks > 1])
def test_one_reading_is_one_look(rule: AlertRule) -> None:
    """A rule that takes several looks does not fire by one reading that is looked at several times."""
    _, last = incident(rule)
    reading = RULES[rule].judged_by[0].reading
    apart = [later(last, 10.0 * n) for n in range(4)]
    same = [read_at(look, reading, STARTED_S) for look in apart[:3]]
    assert looked_at(rule, same).told == []
    fresh = [read_at(look, reading, look.monotonic_s) for look in apart]
    assert looked_at(rule, fresh).told == [TransitionKind.FIRED]


@pytest.mark.parametrize("rule", OF_ENGINES)
def test_an_alert_about_an_engine_ends_with_its_stop(rule: AlertRule) -> None:
    """One look at the stopped unit ends it, also one that flaps; whoever was told hears of it once."""
    before, last = incident(rule)
    bad = [*before, *(later(last, 10.0 * n) for n in range(1, 6))]
    good = [later(box_look(), 60 + 10.0 * n) for n in range(100)]
    stopped = profile_look(
        desired=False, unit=unit_look("u", active=ActiveState.INACTIVE, main_pid=0), answers=None
    )
    end = later(box_look(stopped, listeners=()), 2000.0)
    for looks in ([*bad, end], [*bad, *good, *bad, *good, *bad, end]):
        rounds = looked_at(rule, looks)
        assert rounds.told[-1] is TransitionKind.RESOLVED
        assert rounds.transitions[-1].over == "was stopped"
        (state,) = rounds.book.states.values()
        assert not state.is_open


@pytest.mark.parametrize("rule", JUDGED)
def test_a_boot_ends_what_it_has_ended(rule: AlertRule) -> None:
    """A boot ends alerts about processes and moments; messages about the others wait to be judged."""
    before, last = incident(rule)
    rounds = looked_at(rule, [*before, *(later(last, 10.0 * n) for n in range(1, 62))])
    assert rounds.told[0] is TransitionKind.FIRED
    rounds.now = replace(rounds.now, boot_id="2", monotonic_s=9e6, boot_s=9e6)
    assert rounds.book.clock is not None
    rounds.book = replace(rounds.book, clock=replace(rounds.book.clock, boot_id="1"))
    evaluation = rounds.look()
    (state,) = evaluation.book.states.values()
    if rule in ENDED_BY_BOOT:
        assert rounds.told[-1] is TransitionKind.RESOLVED
        assert (state.is_open, evaluation.postponed) == (False, [])
    else:
        assert (state.is_open, evaluation.postponed) == (True, [state.alert])
        assert evaluation.postponed_unix_s == rounds.now.unix_s + 120.0


@pytest.mark.parametrize("rule", [AlertRule.NO_PROGRESS, AlertRule.LIVE_DOWN, AlertRule.CRASH_LOOP])
def test_an_engine_is_judged_also_where_no_gpu_is_read(rule: AlertRule) -> None:
    """A box without GPUs looks for them every ten minutes, and a driver that hangs tells nothing at all."""
    before, last = incident(rule)
    read_s = last.monotonic_s - 600.0
    assert Sign.BAD in signs(rule, *before, read_at(last, ReadingKind.GPUS, read_s))


CRITICAL, WARNING = Severity.CRITICAL, Severity.WARNING
ON_THE_BOX = {
    AlertRule.FOREIGN_HOLDER,
    AlertRule.UNATTRIBUTED,
    AlertRule.DRIVER,
    AlertRule.DISK,
    AlertRule.SUPERVISOR_DOWN,
    AlertRule.GATEWAY_DOWN,
}
ON_A_GPU = {
    AlertRule.GPU_LOST,
    AlertRule.GPU_ERROR,
    AlertRule.GPU_RECOVERY,
    AlertRule.ECC,
    AlertRule.THROTTLE,
    AlertRule.PCIE,
}
TIMES = [
    # rule, severity, seconds from the first bad look to the fire, from the first good one to the end
    (AlertRule.LIVE_DOWN, CRITICAL, 20, 10),
    (AlertRule.NO_PROGRESS, CRITICAL, 10, 10),
    (AlertRule.CRASH_LOOP, CRITICAL, 0, 900),
    (AlertRule.CPU_FALLBACK, WARNING, 10, 10),
    (AlertRule.SLOW, WARNING, 0, 0),
    (AlertRule.QUALITY, WARNING, 0, 0),
    (AlertRule.NO_PROBE, WARNING, 0, 0),
    (AlertRule.PATCH, WARNING, 10, 10),
    (AlertRule.DRIFT, WARNING, 10, 10),
    (AlertRule.SWITCH_FAILED, CRITICAL, 0, 0),
    (AlertRule.SWITCH_STUCK, CRITICAL, 0, 0),
    (AlertRule.EXPOSED, CRITICAL, 0, 10),
    (AlertRule.FILTER_OFF, WARNING, 10, 10),
    (AlertRule.FOREIGN_HOLDER, WARNING, 60, 60),
    (AlertRule.UNATTRIBUTED, WARNING, 600, 600),
    (AlertRule.GPU_LOST, CRITICAL, 0, 20),
    (AlertRule.GPU_ERROR, CRITICAL, 0, 20),
    (AlertRule.GPU_RECOVERY, CRITICAL, 0, 20),
    (AlertRule.ECC, WARNING, 0, 20),
    (AlertRule.THROTTLE, WARNING, 600, 600),
    (AlertRule.PCIE, WARNING, 600, 600),
    (AlertRule.DRIVER, CRITICAL, 10, 10),
    (AlertRule.DISK, WARNING, 600, 600),
    (AlertRule.SUPERVISOR_DOWN, CRITICAL, 20, 10),
    (AlertRule.GATEWAY_DOWN, CRITICAL, 20, 10),
    (AlertRule.WATCH_DOWN, CRITICAL, 20, 10),
    (AlertRule.TEST, WARNING, 0, 0),
]


def subject_of(rule: AlertRule) -> Subject:
    if rule in ON_THE_BOX:
        return BOX
    if rule in ON_A_GPU:
        return Subject(kind=SubjectKind.GPU, name="GPU-1")
    return GENESIS


def test_every_rule_has_terms() -> None:
    """The table holds the rules of the domain in their order, and so does the one of this test."""
    assert list(RULES) == list(AlertRule) == [rule for rule, *_ in TIMES]


@pytest.mark.parametrize(("rule", "severity", "fires_s", "resolves_s"), TIMES)
def test_a_rule_fires_and_resolves_in_its_time(
    rule: AlertRule, severity: Severity, fires_s: int, resolves_s: int
) -> None:
    """A condition that begins is told after the rule's time, one that ends after another."""
    rounds = AlertRounds(policy=AlertPolicy(time_zone="UTC"))
    subject = subject_of(rule)
    rounds.look_for(100, good(rule, subject))
    rounds.look(bad(rule, subject))
    begun_unix_s = rounds.now.unix_s
    rounds.look_for(1200, bad(rule, subject))
    rounds.look(good(rule, subject))
    ended_unix_s = rounds.now.unix_s
    rounds.look_for(1200, good(rule, subject))
    fired, resolved = (each for each in rounds.transitions if each.kind in {"fired", "resolved"})
    assert fired.unix_s - begun_unix_s == fires_s
    assert resolved.unix_s - ended_unix_s == resolves_s
    assert fired.severity is severity
    assert fired.delivered
    assert resolved.delivered


def test_few_rules_are_told_of_a_standby_model() -> None:
    """A port that others reach, a filter that is off and a stuck switch matter whoever uses the model."""
    assert {rule for rule, terms in RULES.items() if terms.least_mark is Mark.STANDBY} == {
        AlertRule.SWITCH_STUCK,
        AlertRule.EXPOSED,
        AlertRule.FILTER_OFF,
    }
