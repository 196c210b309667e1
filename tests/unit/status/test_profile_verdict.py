"""Verdicts on one profile: whether its file may be removed."""

import pytest

from appliance.model.status import ProfileRow
from appliance.status.profile_verdict import removal_refusal


@pytest.mark.parametrize("state", ["stopped", "failed", "refused"])
def test_a_profile_that_is_over_may_be_removed(state: str) -> None:
    """No process of it is left, and neither a boot nor systemd brings one back."""
    assert removal_refusal(row(state)) is None


@pytest.mark.parametrize("state", ["serving", "loading", "stopping", "restarting"])
def test_a_profile_that_runs_is_stopped_first(state: str) -> None:
    """The refusal has the command; a profile that crashed a moment ago comes back by itself."""
    assert removal_refusal(row(state)) == f"genesis is {state}: appliance stop genesis"


def test_a_committed_profile_is_taken_out_of_the_boot_first() -> None:
    """Whether it runs or not."""
    assert removal_refusal(row("stopped", committed=True)) == (
        "a boot starts genesis: appliance uncommit genesis"
    )
    assert removal_refusal(row("serving", committed=True)) == (
        "genesis is serving, and a boot starts it:"
        " appliance stop genesis, then appliance uncommit genesis"
    )


def row(state: str, *, committed: bool = False) -> ProfileRow:
    return ProfileRow(name="genesis", state=state, committed=committed)
