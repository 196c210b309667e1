"""Operations and their ends."""

import pytest

from appliance.model.operations import Cause, Finished, Goal, Kind, Operation, Outcome

SWITCH = Operation(
    id=1,
    kind=Kind.SWITCH,
    target=("a",),
    goal=Goal(start=("a",)),
    boot_id="x",
    requested_by="ana",
    began_unix_s=0.0,
)


@pytest.mark.parametrize(
    ("outcome", "cause", "failed"),
    [
        (Outcome.DONE, None, False),
        (Outcome.ROLLED_BACK, Cause.FAILURE, True),
        (Outcome.ROLLED_BACK, Cause.CANCELLED, False),
        (Outcome.ROLLED_BACK, Cause.COMMAND_ENDED, False),
        (Outcome.FAILED, Cause.FAILURE, True),
        (Outcome.FAILED, Cause.CANCELLED, True),  # what served before does not serve
        (Outcome.REFUSED, Cause.FAILURE, False),
        (Outcome.SUPERSEDED, None, False),
        (Outcome.INTERRUPTED, None, False),
    ],
)
def test_an_end_that_nobody_wanted_is_a_failure(
    *, outcome: Outcome, cause: Cause | None, failed: bool
) -> None:
    """A refusal, a cancelled or an overtaken operation is no fault of the box."""
    finished = Finished(
        operation=SWITCH, outcome=outcome, message="", cause=cause, finished_unix_s=1.0
    )
    assert finished.failed is failed
