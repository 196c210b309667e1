"""State of the box for the gateway, and the texts of its part in an operation."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.model.gateway import Standing, State
from appliance.model.observed import ActiveState, Observed, ObservedUnit
from appliance.model.operations import Cause, Goal, Kind, Operation, Phase
from appliance.routing.gateway_state import standing_of, state_of
from appliance.status.summary import drained_text, held_text, released_text
from appliance.wire.gateway import decode_state, encode_state
from tests.fakes.profiles import applied, catalogue

BOX = catalogue(applied("aeon", "gpu-all"), applied("genesis", "gpu-all"), applied("embedder"))
UP = ObservedUnit(active=ActiveState.ACTIVE, main_pid=1)
DOWN = ObservedUnit()
LOADS = ObservedUnit(active=ActiveState.ACTIVATING, sub="start", main_pid=1)
SWITCH = Operation(
    id=1,
    kind=Kind.SWITCH,
    target=("genesis",),
    goal=Goal(stop=("aeon",), start=("genesis",), restore=("aeon",)),
    boot_id="boot-1",
    requested_by="test",
    began_unix_s=1.0,
    phase=Phase.DRAIN,
)
RUN = replace(SWITCH, kind=Kind.RUN, goal=Goal(stop=("aeon",), restore=("aeon",)))


def box(**units: ObservedUnit) -> Observed:
    return Observed(units={**dict.fromkeys(BOX, DOWN), **units})


@pytest.mark.parametrize(
    ("unit", "standing"),
    [
        (UP, Standing.SERVING),
        (replace(UP, active=ActiveState.RELOADING), Standing.SERVING),
        (LOADS, Standing.STARTING),
        (replace(LOADS, sub="auto-restart", main_pid=0), Standing.STARTING),
        (replace(UP, active=ActiveState.DEACTIVATING), Standing.STARTING),
        (replace(DOWN, has_job=True), Standing.STARTING),
        (DOWN, Standing.DOWN),
        (replace(DOWN, active=ActiveState.FAILED), Standing.DOWN),
    ],
)
def test_standing_of_a_unit(unit: ObservedUnit, standing: Standing) -> None:
    """A unit that loads, restarts or has not stopped yet is worth waiting for; others are not."""
    assert standing_of(unit) is standing


@pytest.mark.parametrize(
    ("operation", "held", "target"),
    [
        (None, "", ""),
        (replace(SWITCH, phase=Phase.PREFLIGHT), "", ""),
        (replace(SWITCH, phase=Phase.HOLD), "aeon genesis", "genesis"),
        (SWITCH, "aeon genesis", "genesis"),
        (replace(SWITCH, phase=Phase.WARM_UP), "aeon genesis", "genesis"),
        (replace(SWITCH, phase=Phase.STOP, cause=Cause.FAILURE), "aeon genesis", "aeon"),
        (
            replace(SWITCH, phase=Phase.STOP, cause=Cause.FAILURE, rollback=False),
            "aeon genesis",
            "",
        ),
        (replace(RUN, phase=Phase.DRAIN), "aeon", ""),
        (replace(RUN, phase=Phase.RUN), "", ""),
        (replace(RUN, cause=Cause.COMMAND_ENDED, phase=Phase.STOP), "aeon", "aeon"),
    ],
)
def test_requests_wait_for_what_an_operation_touches(
    operation: Operation | None, held: str, target: str
) -> None:
    """Requests wait from the hold to the commit, also on the way back, and not for a command."""
    state = state_of(BOX, box(aeon=UP), ("aeon",), operation)
    assert (" ".join(sorted(state.held)), " ".join(state.target)) == (held, target)
    assert state.standings == {
        "aeon": Standing.SERVING,
        "embedder": Standing.DOWN,
        "genesis": Standing.DOWN,
    }


@pytest.mark.parametrize(
    ("unit", "started", "held"), [(UP, False, False), (UP, True, True), (DOWN, False, True)]
)
def test_a_switch_to_what_serves_holds_nobody(
    unit: ObservedUnit,
    started: bool,  # noqa: FBT001
    held: bool,  # noqa: FBT001
) -> None:
    """A switch to a serving profile holds no requests; a started one holds them to the commit."""
    goal = Goal(start=("genesis",))
    operation = replace(SWITCH, goal=goal, phase=Phase.WARM_UP)
    names = frozenset({"genesis"} if started else ())
    state = state_of(BOX, box(genesis=unit), (), operation, started=names)
    assert ("genesis" in state.held) == held


@pytest.mark.parametrize(
    ("observed", "operation", "paused"),
    [
        (box(), None, False),
        (box(aeon=UP), SWITCH, False),
        (replace(box(), hold_active=True), None, True),
        (replace(box(), run=UP), None, True),
        (box(aeon=UP), RUN, True),
        (box(aeon=UP), replace(SWITCH, kind=Kind.HOLD), True),
    ],
)
def test_nobody_switches_by_asking_while_people_hold_the_box(
    observed: Observed,
    operation: Operation | None,
    paused: bool,  # noqa: FBT001
) -> None:
    """A hold and a command of an operator are not ended by a client's request."""
    assert state_of(BOX, observed, (), operation).paused is paused
    assert state_of(BOX, observed, (), operation, on_hold=True).paused


@pytest.mark.parametrize(
    ("unit", "failed"),
    [
        (replace(DOWN, active=ActiveState.FAILED, result="exit-code"), True),
        (replace(DOWN, result="exec-condition"), True),
        (replace(DOWN, active=ActiveState.FAILED, has_job=True), False),
        (replace(LOADS, sub="auto-restart", result="exit-code", main_pid=0), False),
        (LOADS, False),
        (UP, False),
        (DOWN, False),
    ],
)
def test_a_failure_lasts_until_the_next_start(unit: ObservedUnit, failed: bool) -> None:  # noqa: FBT001
    """An engine that systemd gave up on, or that its gate refused, has failed; one that restarts has not."""
    found = state_of(BOX, box(genesis=unit), ("genesis",), None)
    assert found.failed == ({"genesis"} if failed else frozenset())


@pytest.mark.parametrize(
    ("observed", "operation", "lent"),
    [
        (replace(box(), run=UP), None, True),
        (box(aeon=UP), RUN, True),
        (replace(box(), hold_active=True), None, False),
        (box(aeon=UP), replace(SWITCH, kind=Kind.HOLD), False),
    ],
)
def test_a_command_is_no_hold(
    observed: Observed,
    operation: Operation | None,
    lent: bool,  # noqa: FBT001
) -> None:
    """Clients are told which of the two keeps the models from running."""
    assert state_of(BOX, observed, (), operation).lent is lent


names = st.from_regex(r"[a-z0-9][a-z0-9._-]{0,47}", fullmatch=True)


@given(
    st.builds(
        State,
        standings=st.dictionaries(names, st.sampled_from(Standing)),
        held=st.frozensets(names),
        target=st.lists(names).map(tuple),
        committed=st.lists(names).map(tuple),
        paused=st.booleans(),
        lent=st.booleans(),
        failed=st.frozensets(names),
        crashed=st.frozensets(names),
        retired=st.frozensets(names),
    )
)
def test_a_state_survives_its_journey(state: State) -> None:
    """A state that was sent or stored is read back equal."""
    assert decode_state(encode_state(state)) == state


def test_a_state_of_an_older_release_is_read() -> None:
    """A gateway that was upgraded goes on by the state that its predecessor stored."""
    old = {"standings": {"a": "coming"}, "held": [], "target": [], "committed": [], "paused": True}
    assert decode_state(old) == State(standings={"a": Standing.STARTING}, paused=True)


@pytest.mark.parametrize(
    "document",
    [
        None,
        [],
        {},
        {"standings": [], "held": [], "target": [], "committed": []},
        {"standings": {"a": "asleep"}, "held": [], "target": [], "committed": []},
        {"standings": {"A": "down"}, "held": [], "target": [], "committed": []},
        {"standings": {}, "held": [1], "target": [], "committed": []},
        {"standings": {}, "held": [], "target": "a", "committed": []},
        {"standings": {}, "held": [], "target": [], "committed": [], "failed": "a"},
        {"standings": {}, "held": [], "target": [], "committed": [], "retired": [1]},
    ],
)
def test_what_is_no_state_is_refused(document: object) -> None:
    """A half-right state is refused."""
    with pytest.raises(ValueError, match=r"no |[Ee]xpected|invalid enum value"):
        decode_state(document)


@pytest.mark.parametrize(
    ("requests", "held", "freed"),
    [
        (0, "", ""),
        (1, "1 request waits", "1 request goes on"),
        (3, "3 requests wait", "3 requests go on"),
    ],
)
def test_words_about_held_requests(requests: int, held: str, freed: str) -> None:
    """An operation says how many wait and go on, and nothing where there are none."""
    assert (held_text(requests), released_text(requests)) == (held, freed)


@pytest.mark.parametrize(
    ("finished", "cut", "timeout_s", "text"),
    [
        (0, 0, 30.0, "no requests in flight"),
        (2, 0, 30.0, "2 finished"),
        (2, 1, 30.0, "2 finished, 1 cut after 30 s"),
        (0, 3, 0.0, "3 cut at once"),
    ],
)
def test_words_about_a_drain(finished: int, cut: int, timeout_s: float, text: str) -> None:
    """A drain says how requests ended, and after how long it cut those that did not."""
    assert drained_text(finished, cut, timeout_s) == text
