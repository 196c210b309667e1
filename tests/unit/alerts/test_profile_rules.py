"""Rules about one profile: each row is a look, and what its rule finds."""

from dataclasses import replace
from typing import Any

import pytest

from appliance.alerts.profile_rules import without_secrets
from appliance.model.alerts import AlertRule, Sign
from appliance.model.observed import ActiveState, ObservedUnit
from appliance.model.status import EndedOperationRow, OperationRow
from appliance.model.words import Mark
from appliance.status.unit_state import UnitVerdict
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
from tests.unit.status.test_unit_state import ROWS

UNIT = "appliance-backend-genesis.service"
GOOD, BAD, UNKNOWN = Sign.GOOD, Sign.BAD, Sign.UNKNOWN
SWITCH = OperationRow(
    id=8,
    kind="switch",
    target=("genesis",),
    profiles=("aeon", "genesis"),
    phase="load",
    phase_s=5.0,
    deadline_s=None,
)


def state(active: ActiveState, sub: str = "", **changes: Any) -> dict[str, Any]:
    """Changes of a look whose unit is in this state."""
    return {"unit": unit_look(UNIT, active=active, sub=sub, **changes)}


@pytest.mark.parametrize(
    ("changes", "desired", "not_desired"),
    [
        ({}, GOOD, GOOD),
        ({"answers": None}, GOOD, GOOD),
        ({"answers": False}, BAD, GOOD),
        ({"answers": False, "in_flight": 2, "quiet_s": 3.0, "idle_s": 99.0}, UNKNOWN, GOOD),
        ({"answers": False, "in_flight": 2, "quiet_s": 99.0, "idle_s": 3.0}, UNKNOWN, GOOD),
        ({"answers": False, "in_flight": 2, "quiet_s": 99.0, "idle_s": 99.0}, BAD, GOOD),
        ({"answers": False, "in_flight": 2, "quiet_s": None, "idle_s": None}, BAD, GOOD),
        (state(ActiveState.RELOADING), GOOD, GOOD),
        (state(ActiveState.FAILED), BAD, GOOD),
        (state(ActiveState.INACTIVE), BAD, GOOD),
        (state(ActiveState.MAINTENANCE), BAD, GOOD),
        (state(ActiveState.ACTIVATING, "start"), UNKNOWN, GOOD),
        (state(ActiveState.ACTIVATING, "start", restarts=1), BAD, GOOD),
        (state(ActiveState.ACTIVATING, "auto-restart", restarts=1), BAD, GOOD),
        (state(ActiveState.ACTIVATING, "auto-restart-queued"), BAD, GOOD),
        (state(ActiveState.DEACTIVATING), UNKNOWN, GOOD),
        ({"unit": None, "state": "serving"}, GOOD, GOOD),
        ({"unit": None, "state": "loading"}, UNKNOWN, GOOD),
        ({"unit": None, "state": "stopping"}, UNKNOWN, GOOD),
        ({"unit": None, "state": "stopped"}, BAD, GOOD),
        ({"unit": None, "state": "failed"}, BAD, GOOD),
        ({"unit": None, "state": "restarting"}, BAD, GOOD),
        ({"unit": None, "state": "refused"}, BAD, GOOD),
        ({"unit": None, "state": None}, UNKNOWN, GOOD),
        ({"unit": None, "state": "of another release"}, UNKNOWN, GOOD),
    ],
)
def test_desired_and_observed_make_down(
    changes: dict[str, Any], desired: Sign, not_desired: Sign
) -> None:
    """Only a profile that should serve can be down; no mark changes that."""
    for mark in (*Mark, None):
        for wanted, sign in ((True, desired), (False, not_desired), (None, UNKNOWN)):
            profile = profile_look(**{"mark": mark, "desired": wanted, **changes})
            found = signs_of(looked([box_look(profile)]), AlertRule.LIVE_DOWN)
            assert found == {"profile:genesis": sign}, (mark, wanted)


@pytest.mark.parametrize("active", [ActiveState.ACTIVATING, ActiveState.DEACTIVATING])
@pytest.mark.parametrize("has_unit", [True, False])
def test_load_without_end_is_down(active: ActiveState, *, has_unit: bool) -> None:
    """A load or a stop outside an operation is down after 15 min, by the looks that saw it."""
    word = "loading" if active is ActiveState.ACTIVATING else "stopping"
    unit = unit_look(UNIT, active=active, sub="start") if has_unit else None
    look = box_look(profile_look(unit=unit, state=word))
    early, late = looked([look, later(look, 890)]), looked([look, later(look, 900)])
    assert signs_of(early, AlertRule.LIVE_DOWN) == {"profile:genesis": UNKNOWN}
    found = of_rule(late, AlertRule.LIVE_DOWN)["profile:genesis"]
    assert (found.sign, found.fact) == (BAD, f"down: still {word} after 15 min")
    within = looked([replace(look, operation=SWITCH), later(look, 900, operation=SWITCH)])
    assert signs_of(within, AlertRule.LIVE_DOWN) == {"profile:genesis": UNKNOWN}
    serving = looked([look, later(box_look(), 890), later(look, 910)])
    assert signs_of(serving, AlertRule.LIVE_DOWN) == {"profile:genesis": UNKNOWN}


@pytest.mark.parametrize(
    ("operation", "sign"),
    [(None, BAD), (SWITCH, UNKNOWN), (SWITCH.replaced(profiles=("aeon",)), BAD)],
)
def test_second_load_in_an_operation_is_the_operation_s(
    operation: OperationRow | None, sign: Sign
) -> None:
    """A crash while loading is the operation's to judge, if it is about the profile."""
    unit = unit_look(UNIT, active=ActiveState.ACTIVATING, sub="start", restarts=1)
    found = looked([box_look(profile_look(unit=unit), operation=operation)])
    assert signs_of(found, AlertRule.LIVE_DOWN) == {"profile:genesis": sign}


@pytest.mark.parametrize(
    ("changes", "fact", "command"),
    [
        ({"answers": False}, "its engine does not answer", "appliance restart genesis"),
        (
            state(ActiveState.ACTIVATING, "start", restarts=1),
            "it crashed, and loads again",
            "appliance logs genesis",
        ),
        (
            state(ActiveState.FAILED, result="start-limit-hit"),
            "it failed too often, and is not started again",
            "appliance logs genesis",
        ),
        (
            state(ActiveState.INACTIVE) | {"state": "stopped"},
            "stopped",
            "appliance start genesis",
        ),
        (
            state(ActiveState.INACTIVE) | {"state": "refused"},
            "refused",
            "appliance start genesis",
        ),
        (state(ActiveState.FAILED) | {"state": None}, "failed", "appliance logs genesis"),
        ({"unit": None, "state": "failed"}, "failed", "appliance logs genesis"),
    ],
)
def test_words_of_a_model_that_is_down(changes: dict[str, Any], fact: str, command: str) -> None:
    """The fact says what the unit does; the command is the one to type next."""
    profile = profile_look(**changes, note="exit status 137")
    found = of_rule(looked([box_look(profile)]), AlertRule.LIVE_DOWN)["profile:genesis"]
    assert (found.fact, found.command) == (f"down: {fact}", command)
    assert found.likely == "exit status 137"


@pytest.mark.parametrize(("observed", "verdict"), ROWS)
def test_a_headline_says_what_the_status_says(observed: ObservedUnit, verdict: UnitVerdict) -> None:
    """For each state and cause of systemd an alert has the status's own word, or says why there is none."""
    unit = unit_look(
        UNIT,
        active=observed.active,
        sub=observed.sub,
        result=observed.result,
        restarts=observed.restarts,
    )
    profile = profile_look(unit=unit, state=verdict.state, note=verdict.text)
    found = of_rule(looked([box_look(profile)]), AlertRule.LIVE_DOWN)["profile:genesis"]
    if verdict.state == "serving":
        assert found.sign is Sign.GOOD
    elif verdict.state in {"loading", "stopping"} and not observed.restarts:
        assert found.sign is Sign.UNKNOWN or found.fact == f"down: {verdict.state}"
    else:
        words = {
            ("loading", observed.result): "it crashed, and loads again",
            ("failed", "start-limit-hit"): "it failed too often, and is not started again",
        }
        word = words.get((verdict.state, observed.result), verdict.state)
        assert (found.sign, found.fact) == (Sign.BAD, f"down: {word}")
        assert found.likely == verdict.text


def test_details_of_a_model_that_is_down() -> None:
    """The details are what systemd says of the unit."""
    unit = unit_look(UNIT, active=ActiveState.FAILED, result="oom-kill", restarts=2, loaded=False)
    found = of_rule(looked([box_look(profile_look(unit=unit))]), AlertRule.LIVE_DOWN)
    assert found["profile:genesis"].details == (
        "its unit is missing",
        f"{UNIT}: oom-kill",
        "restarted by systemd 2 times since its last start",
    )


def restarted(*counts: int, every_s: float = 10.0, **changes: Any) -> Any:
    """Finding about a crash loop after looks with these counts of restarts."""
    looks = [
        later(box_look(profile_look(unit=unit_look(UNIT, restarts=count, **changes))), n * every_s)
        for n, count in enumerate(counts)
    ]
    return of_rule(looked(looks), AlertRule.CRASH_LOOP)["profile:genesis"]


@pytest.mark.parametrize(
    ("counts", "every_s", "sign"),
    [
        ((0,), 10, GOOD),
        ((50,), 10, GOOD),  # before the first look
        ((0, 1, 2), 10, GOOD),
        ((0, 1, 2, 3), 10, BAD),
        ((0, 3), 10, BAD),
        ((0, 1, 2, 3), 199, BAD),
        ((0, 1, 2, 3), 300, GOOD),  # slower than 3 in 10 min
        ((0, 3, *[3] * 59), 10, BAD),
        ((0, 3, *[3] * 60), 10, GOOD),  # none for 10 min
        ((0, 3, 0), 10, BAD),  # counted anew from a start by hand or by a repair
        ((0, 1, 0, 1, 0, 1), 10, BAD),
        ((0, 2, 1), 10, BAD),
        ((0, 2, 0, 0), 10, GOOD),
        ((0, 1000, 1001), 10, BAD),
    ],
)
def test_three_restarts_in_ten_minutes_are_a_crash_loop(
    counts: tuple[int, ...], every_s: float, sign: Sign
) -> None:
    """Restarts are counted between looks, also where systemd begins to count anew."""
    assert restarted(*counts, every_s=every_s).sign is sign


@pytest.mark.parametrize(
    ("stop", "sign"),
    [
        ({"active": ActiveState.INACTIVE}, GOOD),
        ({"active": ActiveState.FAILED, "result": "timeout", "was_stopped": True}, GOOD),
        ({"active": ActiveState.FAILED, "result": "exit-code"}, BAD),
        ({"active": ActiveState.INACTIVE, "result": "exec-condition"}, BAD),
    ],
)
def test_a_stop_ends_the_count_of_restarts(stop: dict[str, Any], sign: Sign) -> None:
    """A profile that was stopped and started again is judged by its new run; a crash or a refusal is no stop."""
    units = [unit_look(UNIT, restarts=count) for count in (0, 1, 2)]
    units += [unit_look(UNIT, **stop), unit_look(UNIT), unit_look(UNIT, restarts=1)]
    looks = [later(box_look(profile_look(unit=unit)), 11.0 * n) for n, unit in enumerate(units)]
    assert of_rule(looked(looks), AlertRule.CRASH_LOOP)["profile:genesis"].sign is sign


def test_repairs_are_restarts_of_a_crash_loop() -> None:
    """An engine that the gate refuses to restart, and that repairs start, is in a crash loop."""
    unit = profile_look(unit=unit_look(UNIT, restarts=1))
    looks = [later(box_look(unit), 0.0)]
    for number in (11, 12, 13):
        repair = EndedOperationRow(
            id=number,
            kind="repair",
            target=("genesis",),
            outcome="done",
            failed=False,
            finished_unix_s=NOW,
        )
        looks += [later(box_look(unit, last_operation=repair), 11.0 * number)] * 2
    assert of_rule(looked(looks), AlertRule.CRASH_LOOP)["profile:genesis"].sign is BAD
    others = [replace(look, last_operation=box_look().last_operation) for look in looks]
    assert of_rule(looked(others), AlertRule.CRASH_LOOP)["profile:genesis"].sign is GOOD


def test_a_repair_that_runs_is_a_restart_too() -> None:
    """A look in the middle of a repair counts it, and one after its end does not count it again."""
    unit = profile_look(unit=unit_look(UNIT, restarts=1))
    looks = [later(box_look(unit), 0.0)]
    for number in (11, 12, 13):
        repair = SWITCH.replaced(id=number, kind="repair")
        looks.append(later(box_look(unit, operation=repair), 11.0 * number))
    looks.append(later(box_look(unit), 150.0))
    assert of_rule(looked(looks), AlertRule.CRASH_LOOP)["profile:genesis"].sign is BAD
    assert (
        of_rule(looked([*looks[:3], looks[-1]]), AlertRule.CRASH_LOOP)["profile:genesis"].sign
        is GOOD
    )


def test_crash_loop_says_whether_systemd_goes_on() -> None:
    """The finding says whether the unit is still restarted, or its start limit was hit."""
    found = restarted(0, 3)
    assert found.fact == "crash loop: 3 restarts in 10 min"
    assert "still restarts it" in found.details[0]
    given_up = restarted(5, active=ActiveState.FAILED, result="start-limit-hit")
    assert (given_up.sign, given_up.fact) == (BAD, "crash loop: given up after too many starts")
    assert given_up.details[0].endswith("appliance start genesis")
    assert restarted(2, active=ActiveState.FAILED, result="exit-code").sign is GOOD
    assert restarted(2, result="start-limit-hit").sign is GOOD


def test_crash_loop_is_remembered_while_systemd_does_not_answer() -> None:
    """Looks without units lose no count; a profile that was removed is forgotten."""
    first = box_look(profile_look(unit=unit_look(UNIT)))
    unseen = later(box_look(profile_look(unit=None)), 10)
    last = later(box_look(profile_look(unit=unit_look(UNIT, restarts=3))), 20)
    assert signs_of(looked([first, unseen]), AlertRule.CRASH_LOOP) == {"profile:genesis": UNKNOWN}
    found = signs_of(looked([first, unseen, last]), AlertRule.CRASH_LOOP)
    assert found == {"profile:genesis": BAD}
    removed = later(box_look(profile_look("aeon")), 10)
    found = signs_of(looked([first, removed, last]), AlertRule.CRASH_LOOP)
    assert found == {"profile:genesis": GOOD}


STOPPED = {"desired": False, **state(ActiveState.INACTIVE)}


@pytest.mark.parametrize(
    ("rule", "field"),
    [(AlertRule.CPU_FALLBACK, "is_on_gpu"), (AlertRule.PATCH, "patch_applied")],
)
@pytest.mark.parametrize(
    ("is_so", "changes", "sign"),
    [
        (True, {}, GOOD),
        (False, {}, BAD),
        (None, {}, UNKNOWN),
        (False, {"answers": False, "in_flight": 1, "quiet_s": 1.0}, BAD),
        (False, state(ActiveState.ACTIVATING, "start"), UNKNOWN),
        (False, STOPPED, GOOD),  # over, since somebody stopped it
        (False, STOPPED | {"desired": True}, UNKNOWN),  # another rule's
    ],
)
def test_an_engine_is_as_promised(
    rule: AlertRule, field: str, *, is_so: bool | None, changes: dict[str, Any], sign: Sign
) -> None:
    """A model on the CPU, or an engine without its patch, is found while it serves."""
    found = of_rule(looked([box_look(profile_look(**{field: is_so, **changes}))]), rule)
    assert found["profile:genesis"].sign is sign


@pytest.mark.parametrize(
    ("held", "needs", "details"),
    [
        (GIB, 11 * GIB, ("1.0 of 11.0 GiB of GPU memory held",)),
        (None, 11 * GIB, ()),
        (GIB, None, ()),
    ],
)
def test_details_of_a_model_on_the_cpu(
    held: int | None, needs: int | None, details: tuple[str, ...]
) -> None:
    """The details say how much memory the model holds, where both figures are known."""
    profile = profile_look(is_on_gpu=False, held_bytes=held, needs_bytes=needs)
    found = of_rule(looked([box_look(profile)]), AlertRule.CPU_FALLBACK)["profile:genesis"]
    assert (found.details, found.command) == (details, "appliance logs genesis")


@pytest.mark.parametrize(
    ("drift", "sign", "fact"),
    [
        ((), GOOD, ""),
        (None, UNKNOWN, ""),
        (("+Nice=5",), BAD, "its unit is not the one that was applied: 1 line changed"),
        (
            ("-Nice=5", "+Nice=1", "+CPUQuota=50%", "+LimitNOFILE=9"),
            BAD,
            "its unit is not the one that was applied: 4 lines changed",
        ),
    ],
)
def test_drift_is_told_with_its_first_lines(
    drift: tuple[str, ...] | None, sign: Sign, fact: str
) -> None:
    """A unit that differs is found, with three lines of the difference."""
    found = of_rule(looked([box_look(profile_look(drift=drift))]), AlertRule.DRIFT)
    one = found["profile:genesis"]
    assert (one.sign, one.fact, one.details) == (sign, fact, (drift or ())[:3])


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("+Nice=5", "+Nice=5"),
        ("-Nice = 5", "-Nice = 5"),
        (" CPUQuota=50%", " CPUQuota=50%"),
        ("+[Service]", "+[Service]"),
        ('+Environment="HF_TOKEN=secret"', "+Environment=…"),
        ("+SetCredential=key:secret", "+SetCredential=…"),
        ("-ExecStart=/usr/bin/vllm --api-key secret", "-ExecStart=…"),
        ("+ExecStartPre=/bin/sh -c secret", "+ExecStartPre=…"),
        ("+  --api-key secret", "+…"),
        ("secret", "…"),
        ("", "…"),
    ],
)
def test_values_that_may_be_secret_are_left_out(line: str, shown: str) -> None:
    """Commands, environments and lines that continue them lose what they say."""
    assert without_secrets(line) == shown
