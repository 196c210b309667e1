"""Operations on record: the last one that changed something, and whose hold is in force."""

import pytest

from appliance.model.operations import FOREVER, Finished, Goal, HoldUntil, Kind, Operation, Outcome
from appliance.supervisor.reconciler import OperationHistory
from tests.fakes.ports import FakeStore


def ended(number: int, outcome: Outcome, *, hold: HoldUntil = None, by: str = "ana") -> Finished:
    """An operation that is over; `hold`: the end of a hold, None: it is a switch."""
    operation = Operation(
        id=number,
        kind=Kind.SWITCH if hold is None else Kind.HOLD,
        target=(),
        goal=Goal(hold_until=hold),
        boot_id="boot-0",
        requested_by=by,
        began_unix_s=900.0,
    )
    return Finished(operation=operation, outcome=outcome, message="", finished_unix_s=950.0)


@pytest.mark.parametrize(
    ("outcomes", "told"),
    [
        ((), None),
        ((Outcome.DONE,), 1),
        ((Outcome.DONE, Outcome.FAILED), 2),
        ((Outcome.DONE, Outcome.REFUSED), 1),
        ((Outcome.FAILED, Outcome.REFUSED, Outcome.REFUSED), 1),
        ((Outcome.REFUSED,), None),
    ],
)
async def test_a_refusal_does_not_replace_what_was_done(
    outcomes: tuple[Outcome, ...], told: int | None
) -> None:
    """A refused operation has changed nothing; the status tells the one before it."""
    store = FakeStore()
    store.ended = [ended(number, outcome) for number, outcome in enumerate(outcomes, 1)]
    found = await OperationHistory(store).last_change(await store.last())
    assert (found and found.operation.id) == told


@pytest.mark.parametrize(
    ("until", "by"),
    [
        (None, None),
        (FOREVER, None),
        (1000.0, "ben"),
        # The file of a hold has whole seconds.
        (1000.4, "ben"),
        (2000.0, None),
    ],
)
async def test_a_hold_has_a_name(until: HoldUntil, by: str | None) -> None:
    """The requester of the newest hold that was done, if it is the one in force."""
    store = FakeStore()
    store.ended = [
        ended(1, Outcome.DONE, hold=FOREVER),
        ended(2, Outcome.DONE, hold=1000.0, by="ben"),
        ended(3, Outcome.REFUSED, hold=2000.0, by="eve"),
    ]
    assert await OperationHistory(store).held_by(until) == by
