"""Rules about listeners and loopback filters."""

from typing import Any

import pytest

from appliance.model.alerts import AlertRule, Sign
from appliance.model.words import Mark
from appliance.wire.helpers import Listener
from tests.fakes.looks import box_look, looked, of_rule, profile_look, signs_of, unit_look

UNIT = "appliance-backend-genesis.service"
GOOD, BAD, UNKNOWN = Sign.GOOD, Sign.BAD, Sign.UNKNOWN


def listener(**changes: Any) -> Listener:
    address = "0.0.0.0"  # noqa: S104 - what a backend must not do
    one = Listener(address=address, port=8022, pid=4121, process="vllm", unit=UNIT)
    return one.replaced(**changes)


@pytest.mark.parametrize(
    ("listeners", "genesis", "box"),
    [
        (None, UNKNOWN, UNKNOWN),
        ((), GOOD, GOOD),
        ((listener(),), BAD, GOOD),
        ((listener(address="::"),), BAD, GOOD),
        ((listener(address="127.0.0.1", is_reachable=False),), GOOD, GOOD),
        ((listener(unit="", process="python3"),), GOOD, BAD),
        ((listener(unit="ollama.service"),), GOOD, BAD),
        ((listener(unit="appliance-backend-removed.service"),), GOOD, BAD),
        ((listener(), listener(unit="")), BAD, BAD),
    ],
)
def test_listener_beyond_loopback_is_exposed(
    listeners: tuple[Listener, ...] | None, genesis: Sign, box: Sign
) -> None:
    """A backend's is its profile's, that of another holder of GPU memory the box's."""
    found = looked([box_look(listeners=listeners)])
    assert signs_of(found, AlertRule.EXPOSED) == {"profile:genesis": genesis, "box": box}


@pytest.mark.parametrize(
    ("mark", "genesis", "box"),
    [
        (Mark.LIVE, BAD, GOOD),
        (None, BAD, GOOD),
        (Mark.STANDBY, BAD, GOOD),
        (Mark.RETIRED, UNKNOWN, BAD),
    ],
)
def test_exposure_of_a_retired_profile_is_the_box_s(
    mark: Mark | None, genesis: Sign, box: Sign
) -> None:
    """A port that is open to everybody is told, though nobody is told of its profile."""
    found = looked([box_look(profile_look(mark=mark), listeners=(listener(),))])
    assert signs_of(found, AlertRule.EXPOSED) == {"profile:genesis": genesis, "box": box}


def test_words_of_an_exposed_backend() -> None:
    """The fact names program and address, the details each listener and what the filter does."""
    six = listener(address="::", port=9000, pid=4122, process="ray")
    look = box_look(listeners=(listener(), six))
    one = of_rule(looked([look]), AlertRule.EXPOSED)["profile:genesis"]
    assert one.fact == "exposed: vllm listens on 0.0.0.0:8022"
    assert one.details == (
        f"0.0.0.0:8022: vllm (pid 4121, {UNIT})",
        f"[::]:9000: ray (pid 4122, {UNIT})",
        "the filter of its unit still keeps other machines out",
    )
    assert one.command == "appliance show genesis"
    many = box_look(listeners=tuple(listener(port=port) for port in range(9000, 9010)))
    crowd = of_rule(looked([many]), AlertRule.EXPOSED)["profile:genesis"]
    assert len(crowd.details) == 4
    foreign = box_look(listeners=(listener(unit=""),))
    other = of_rule(looked([foreign]), AlertRule.EXPOSED)["box"]
    assert (other.details, other.command) == (("0.0.0.0:8022: vllm (pid 4121)",), "ps -fp 4121")


@pytest.mark.parametrize("unit", [None, unit_look(UNIT, is_filtered=None)])
def test_nothing_is_said_of_a_filter_that_is_not_known(unit: Any) -> None:
    """Only a filter that is enforced keeps others out."""
    look = box_look(profile_look(unit=unit), listeners=(listener(),))
    one = of_rule(looked([look]), AlertRule.EXPOSED)["profile:genesis"]
    assert len(one.details) == 1


@pytest.mark.parametrize(
    ("genesis", "aeon", "sign"),
    [
        (True, True, GOOD),
        (True, None, GOOD),
        (None, None, UNKNOWN),
        (False, None, BAD),
        (True, False, BAD),
    ],
)
def test_filter_that_is_not_enforced_is_told_once(
    *, genesis: bool | None, aeon: bool | None, sign: Sign
) -> None:
    """The kernel enforces the filters of all backends that run, or the box is told."""
    profiles = [
        profile_look(name, unit=unit_look(f"appliance-backend-{name}.service", is_filtered=on))
        for name, on in (("genesis", genesis), ("aeon", aeon))
    ]
    found = signs_of(looked([box_look(*profiles)]), AlertRule.FILTER_OFF)
    assert found == {"box": sign}


def test_words_of_a_filter_that_is_off() -> None:
    """The fact names the backends, the command shows the counter."""
    unit = unit_look(UNIT, is_filtered=False)
    look = box_look(profile_look(unit=unit), profile_look("aeon", unit=None))
    one = of_rule(looked([look]), AlertRule.FILTER_OFF)["box"]
    assert one.fact == "loopback filter not enforced: genesis"
    assert one.command == "systemctl show -p IPEgressBytes appliance-backend-genesis"
    names = [f"p{number}" for number in range(5)]
    units = [unit_look(f"appliance-backend-{name}.service", is_filtered=False) for name in names]
    five = [profile_look(name, unit=unit) for name, unit in zip(names, units, strict=True)]
    found = of_rule(looked([box_look(*five)]), AlertRule.FILTER_OFF)["box"]
    assert found.fact == "loopback filter not enforced: p0, p1 and p2"
