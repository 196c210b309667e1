"""Registry of the watchdog's rules: complete, and silent where all is well or nothing is known."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.alerts.watchdog_rules.snapshot import (
    BoxLook,
    DiskLook,
    EndedOperation,
    GpuError,
    GpuHolder,
    GpuLook,
    OperationLook,
    ProfileLook,
    UnitLook,
    WatchLook,
)
from appliance.alerts.watchdog_rules.watchdog import RULES, circumstances, findings
from appliance.alerts.watchdog_rules.watchdog_memory import WatchdogMemory
from appliance.alerts.watchdog_rules.watchdog_rule import WatchdogRule, profile_subject
from appliance.model.alerts import AlertRule, Sign, Subject, SubjectKind
from appliance.model.observed import ActiveState
from appliance.model.words import Mark, Series
from appliance.speed.speeds import SeriesSpeed
from appliance.wire.helpers import Listener
from appliance.wire.typed_json import from_json
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
    assert [one.rule for one in RULES] == JUDGED
    assert all(one.source for one in RULES)


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
OPERATION: Final = OperationLook(
    id=9,
    kind="switch",
    target=("genesis",),
    profiles=("genesis",),
    phase="stop",
    phase_s=100.0,
    deadline_s=90.0,
)
FAILURE: Final = EndedOperation(
    id=8, kind="switch", target="genesis", outcome="failed", failed=True, ended_unix_s=NOW
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


def missed(rules: Sequence[WatchdogRule]) -> set[AlertRule]:
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
    assert missed(RULES) == set()


@pytest.mark.parametrize("rule", JUDGED)
def test_registry_without_a_rule_misses_its_incident(rule: AlertRule) -> None:
    """A rule that is taken out of the registry is missed by the test above, and by no other rule's."""
    assert missed([one for one in RULES if one.rule is not rule]) == {rule}


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
