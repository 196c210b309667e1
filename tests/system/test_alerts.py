"""Alerts on a booted box, up to what a phone shows: one message a fault, updated when it is over.

The agent's looks come ten times as fast as on a box (`trial_speed`), so that six seconds here stand for
the minute within which a person is told. A local server that speaks ntfy's publish API is the phone.
"""

import json
import time
from collections.abc import Iterator, Sequence

import pytest

from tests.system.chat import ask, ask_streaming
from tests.system.fleet import ENGINE, Fleet
from tests.system.phone import Phone
from tests.system.rig import Box, Image, RigError

HEALTH = "appliance-health.service"
SETTINGS = """
[health]
enabled = false
trial_speed = 10

[[watch]]
name = "wiki"
unit = "wiki.service"
"""
SPEED = 10
MINUTE_S = 60 / SPEED
TOLD_WITHIN_S = 30.0
"""Half of the real minute: the supervisor's own periods are not shorter here, and the machine is busy."""
PATIENCE_S = 60.0
FROZEN_WITHIN_S = 90.0
"""Not faster here: the gateway counts the seconds without a byte."""
GATEWAY = 8010


@pytest.fixture(scope="module")
def fleet(image: Image) -> Iterator[Fleet]:
    """A box whose live model a serves, and whose live model b cannot."""
    with Box(image) as box:
        fleet = Fleet(box)
        box.run("systemd-run -q --unit=wiki sleep infinity")
        box.write("/etc/appliance/appliance.toml", SETTINGS)
        box.run(f"systemctl restart appliance-supervisor.service {HEALTH}")
        fleet.profile("a", 9001, "--apart")
        fleet.profile("b", 9002, "--die")
        fleet.apply()
        fleet.switch("a")
        box.run("appliance mark a live; appliance mark b live")
        yield fleet


@pytest.fixture(scope="module")
def phone(fleet: Fleet) -> Phone:
    """A phone that is told of everything there."""
    phone = Phone(fleet.box)
    phone.subscribe()
    return phone


def down_titles(phone: Phone) -> Sequence[str]:
    """Return the titles about a that is down; what was told of it before may still be resolved."""
    return [title for title in phone.titles() if "a down" in title]


def break_engine(fleet: Fleet) -> None:
    """Kill the engine of a, which cannot be started again."""
    fleet.box.run(f"mv {ENGINE} {ENGINE}.away")
    fleet.box.run(f"kill -9 {fleet.main_pid('a')}")


def mend_engine(fleet: Fleet) -> None:
    """Start a again."""
    fleet.box.run(f"mv {ENGINE}.away {ENGINE}")
    fleet.box.run("appliance start a")


def is_answered(fleet: Fleet) -> bool:
    """Tell whether a request to a is answered: the gateway may have to learn first that it serves."""
    try:
        return "hello" in ask(fleet.box, GATEWAY, "x", model="a")
    except RigError:
        return False


def gates(fleet: Fleet, name: str) -> set[str | None]:
    """Return why nobody is told of the alerts of a profile that are not over."""
    rows = json.loads(fleet.box.run("appliance alerts --json", check=False).stdout)["alerts"]
    return {one["gate"] for one in rows if one["subject"] == f"profile:{name}"}


def test_a_live_model_that_is_down_is_one_entry_until_it_is_back(
    fleet: Fleet, phone: Phone
) -> None:
    """One critical message within a minute; the end is told in the same entry."""
    break_engine(fleet)
    phone.until(lambda: bool(phone.entries("live-down")), TOLD_WITHIN_S)
    (down,) = phone.entries("live-down")
    assert down["shown"]["title"].startswith("▼ a down: ")
    assert down["shown"]["priority"] == 5
    assert "Do: appliance" in down["shown"]["message"]
    mend_engine(fleet)
    phone.until(
        lambda: "serves again" in phone.entries("live-down")[0]["shown"]["title"],
        PATIENCE_S,
    )
    (over,) = phone.entries("live-down")
    assert (over["sequence_id"], over["shown"]["priority"]) == (down["sequence_id"], 3)
    assert over["messages"] == 2


def test_a_frozen_engine_is_told_though_it_says_that_all_is_well(
    fleet: Fleet, phone: Phone
) -> None:
    """SIGSTOP of the process that answers, with a request in flight: told within 90 s."""
    phone.until(lambda: is_answered(fleet), PATIENCE_S)
    main = fleet.main_pid("a")
    worker = fleet.box.run(f"cat /proc/{main}/task/{main}/children").stdout.split()[0]
    fleet.box.run("kill", "-STOP", worker)
    with ask_streaming(fleet.box, GATEWAY, "x", model="a") as waiting:
        phone.until(lambda: bool(phone.entries("no-progress")), FROZEN_WITHIN_S)
        assert waiting.process.poll() is None
        fleet.box.run("curl -sf http://127.0.0.1:9001/health")
        fleet.box.run("kill", "-CONT", worker)
        waiting.process.wait(30)
    phone.until(
        lambda: phone.entries("no-progress")[0]["shown"]["priority"] == 3,
        PATIENCE_S,
    )


def test_a_standby_model_that_is_down_is_told_to_nobody(fleet: Fleet, phone: Phone) -> None:
    """The same death is known, and held back by the mark."""
    fleet.box.run("appliance mark a standby")
    before = down_titles(phone)
    break_engine(fleet)
    phone.until(lambda: "mark" in gates(fleet, "a"), PATIENCE_S)
    # Shorter than three restarts, 5 s apart, which would be a crash loop for some time to come.
    time.sleep(MINUTE_S / 2)  # real time: nothing is to come
    mend_engine(fleet)
    phone.until(lambda: fleet.active() == ["a"], PATIENCE_S)
    time.sleep(MINUTE_S / 2)  # real time: two good looks, so that no alert of it is left to tell
    fleet.box.run("appliance mark a live")
    assert down_titles(phone) == before


def test_a_retired_service_is_told_to_nobody(fleet: Fleet, phone: Phone) -> None:
    """The entry stays in the settings, and the service dead: the mark decides, and no document."""
    fleet.box.run("systemctl stop wiki.service")
    phone.until(lambda: bool(phone.entries("watch-down")), TOLD_WITHIN_S)
    fleet.box.run("appliance mark wiki retired")
    phone.until(lambda: "wiki" not in fleet.box.run("appliance alerts").stdout, PATIENCE_S)
    time.sleep(MINUTE_S)  # real time: nothing is to come
    (entry,) = phone.entries("watch-down")
    assert entry["messages"] == 1


def test_a_switch_that_fails_is_told_and_the_switch_itself_is_not(
    fleet: Fleet, phone: Phone
) -> None:
    """The model that could not be started is told; that the other was away meanwhile is not."""
    before = len(phone.titles())
    assert fleet.cli("switch", "b").exit == 10
    phone.until(lambda: bool(phone.entries("switch-failed")), TOLD_WITHIN_S)
    time.sleep(MINUTE_S / 2)  # real time: nothing else is to come
    assert [one for one in phone.titles()[before:] if " b " not in one] == []


def test_a_supervisor_in_a_crash_loop_is_told(fleet: Fleet, phone: Phone) -> None:
    """The agent sees it without the supervisor, and its symptoms are not told beside it."""
    for _ in range(4):
        fleet.box.run("systemctl kill -s KILL appliance-supervisor.service")
        fleet.box.wait_for("systemctl is-active -q appliance-supervisor.service", timeout_s=20)
        time.sleep(0.5)  # real time: each restart is to be one that a look can count
    phone.until(lambda: bool(phone.entries("supervisor-down")), TOLD_WITHIN_S)
    assert "supervisor" in phone.entries("supervisor-down")[0]["shown"]["title"]
