"""Status from `systemctl show`, without the supervisor."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.cli.offline_status import observed_from, parse_blocks, unit_from
from appliance.model.observed import ActiveState, ObservedUnit

# As systemd 252 prints it: an empty line between units, Job only while there is one.
OUTPUT = """\
Type=notify
MainPID=4121
Result=success
StatusText=ready; 3 of 3 layers
ExecMainStatus=0
Id=appliance-backend-aeon.service
LoadState=loaded
ActiveState=active
SubState=running
ActiveEnterTimestamp=@1700000000
NeedDaemonReload=yes

Id=appliance-hold.service
LoadState=loaded
ActiveState=active
SubState=exited

MainPID=0
Result=exit-code
ExecMainStatus=3
Id=appliance-backend-genesis.service
LoadState=not-found
ActiveState=activating
SubState=auto-restart
ActiveEnterTimestamp=
Job=411
"""


def test_every_block_is_one_unit() -> None:
    """Each unit has its own properties, whatever their order."""
    observed = observed_from(parse_blocks(OUTPUT))
    assert observed.hold_active
    assert observed.units == {
        "aeon": ObservedUnit(
            active=ActiveState.ACTIVE,
            sub="running",
            main_pid=4121,
            status_text="ready; 3 of 3 layers",
            since_unix_s=1.7e9,
            needs_reload=True,
        ),
        "genesis": ObservedUnit(
            active=ActiveState.ACTIVATING,
            sub="auto-restart",
            has_job=True,
            result="exit-code",
            exit_status=3,
            loaded=False,
        ),
    }


def test_the_status_text_may_hold_the_separator() -> None:
    """Only the first equals sign of a line separates."""
    (unit,) = parse_blocks("Id=a.service\nStatusText=a=b=c\n").values()
    assert unit_from(unit).status_text == "a=b=c"


def test_how_a_unit_failed_is_told_without_the_supervisor() -> None:
    """A pause before a restart shows that systemd gave up, none that somebody stopped it."""
    failed = {
        "ActiveState": "failed",
        "Result": "timeout",
        "Restart": "always",
        "RestartUSec": "1min 40s",
        "ExecMainExitTimestampMonotonic": "25000000",
        "InactiveEnterTimestampMonotonic": "25100000",
    }
    unit = unit_from(failed)
    assert (unit.result, unit.was_stopped) == ("timeout", True)
    unit = unit_from({**failed, "InactiveEnterTimestampMonotonic": "126000000"})
    assert (unit.result, unit.was_stopped) == ("start-limit-hit", False)


@pytest.mark.parametrize("state", ["refreshing", ""])
def test_a_state_of_a_later_systemd_is_not_serving(state: str) -> None:
    """A word that this version does not know is no reason to fail, and no model that serves."""
    unit = unit_from({"ActiveState": state})
    assert unit.active is ActiveState.MAINTENANCE
    assert not unit.serving


@given(st.text())
def test_any_output_is_read(output: str) -> None:
    """No output of systemctl makes the command line fail."""
    observed_from(parse_blocks(output))


@given(
    st.dictionaries(
        st.sampled_from(["MainPID", "ExecMainStatus", "Job", "Id", "RestartUSec"]), st.text()
    )
)
def test_any_property_is_read(properties: dict[str, str]) -> None:
    """No value of a property makes the command line fail."""
    unit_from(properties)
