"""Progress of a phase, by how long it took before."""

from dataclasses import replace

import pytest

from appliance.model.operations import Finished, Goal, Kind, Operation, Outcome
from appliance.status.phase_progress import MOST_SHARE, phase_share, usual_phases_s

SWITCH = Operation(
    id=9,
    kind=Kind.SWITCH,
    target=("aeon",),
    goal=Goal(),
    boot_id="b",
    requested_by="ana",
    began_unix_s=0.0,
    began_s=0.0,
)


def ended(load_ms: float, outcome: Outcome = Outcome.DONE, target: str = "aeon") -> Finished:
    operation = replace(SWITCH, id=1, target=(target,), kind=Kind.START)
    phases = {"load": load_ms, "roll-back load": 1.0}
    return Finished(
        operation=operation, outcome=outcome, message="", finished_unix_s=1.0, phases_ms=phases
    )


def test_usual_is_the_median_of_the_last_times() -> None:
    """Of the same target, whatever brought it up; what failed or is long ago does not count."""
    found = [
        ended(90_000, Outcome.FAILED),
        ended(50_000),
        ended(3_000, target="mini"),
        ended(48_000),
        *(ended(46_000) for _ in range(3)),
        *(ended(1_000) for _ in range(20)),
    ]
    assert usual_phases_s(found, SWITCH)["load"] == 46.0
    itself = replace(ended(5_000), operation=SWITCH)
    assert usual_phases_s([itself], SWITCH) == {}


@pytest.mark.parametrize(
    ("phase_s", "usual_s", "share"),
    [
        (0.0, 40.0, 0.0),
        (10.0, 40.0, 0.25),
        (90.0, 40.0, MOST_SHARE),
        (1.0, None, None),
        (1.0, 0.4, None),
    ],
)
def test_a_share_never_says_that_it_is_over(
    phase_s: float, usual_s: float | None, share: float | None
) -> None:
    """A phase that lasts longer than usual still runs; a short one needs no share."""
    assert phase_share(phase_s, usual_s) == share
