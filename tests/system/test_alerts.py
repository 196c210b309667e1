"""Alerts on a booted box, up to what a phone shows: one message a fault, updated when it is over.

The agent's looks come ten times as fast as on a box (`trial_speed`), so that six seconds here stand for
the minute within which a person is told. A local server that speaks ntfy's publish API is the phone.
"""

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.system.chat import ask, ask_streaming
from tests.system.fleet import ENGINE, Fleet
from tests.system.rig import Box, Image, RigError

HEALTH = "appliance-health.service"
SERVER = Path(__file__).parents[1] / "fakes" / "ntfy_server.py"
PROGRAM = "/usr/local/lib/test-engine/ntfy_server.py"
STATE = "/var/tmp/ntfy.json"  # noqa: S108 - in the box
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
Entry = Mapping[str, Any]


@pytest.fixture(scope="module")
def fleet(image: Image) -> Iterator[Fleet]:
    """A box whose live models a and c serve, with a phone that is told of everything."""
    with Box(image) as box:
        fleet = Fleet(box)
        box.write(PROGRAM, SERVER.read_text("utf-8"))
        box.run(
            f"systemd-run -q --unit=ntfy /usr/bin/python3 {PROGRAM} --port 8085 --state {STATE}"
        )
        box.run("systemd-run -q --unit=wiki sleep infinity")
        box.write("/etc/appliance/appliance.toml", SETTINGS)
        box.run(f"systemctl restart appliance-supervisor.service {HEALTH}")
        box.wait_for("grep -q ':1F95 ' /proc/net/tcp")
        box.run("appliance target add phone", stdin="http://127.0.0.1:8085/garage\n")
        fleet.profile("a", 9001, "--apart")
        fleet.profile("b", 9002, "--die")
        fleet.apply()
        fleet.switch("a")
        box.run("appliance mark a live; appliance mark b live")
        yield fleet


def state(fleet: Fleet) -> Mapping[str, Any]:
    """Return what the phone's server has received."""
    text = fleet.box.run(f"cat {STATE}", check=False).stdout or "{}"
    found: Mapping[str, Any] = json.loads(text)
    return found


def entries(fleet: Fleet, *words: str) -> list[Entry]:
    """Return the entries on the phone whose sequence of messages is about all of these words."""
    found = state(fleet).get("entries", [])
    return [one for one in found if all(word in one["sequence_id"] for word in words)]


def until(fleet: Fleet, is_so: Callable[[], bool], within_s: float) -> float:
    """Wait; return the seconds that it took."""
    began = time.monotonic()
    while not is_so():
        if time.monotonic() - began > within_s:
            shown = json.dumps(state(fleet), indent=1)
            alerts = fleet.box.run("appliance alerts", check=False).stdout
            raise RigError(
                f"not within {within_s} s: {alerts}\n{shown}\n{fleet.box.journal('-n80')}"
            )
        time.sleep(0.2)
    return time.monotonic() - began


def titles(fleet: Fleet) -> Sequence[str]:
    """Return the titles of everything that was delivered."""
    return [one["title"] for one in state(fleet).get("delivered", [])]


def down_titles(fleet: Fleet) -> Sequence[str]:
    """Return the titles about a that is down; what was told of it before may still be resolved."""
    return [title for title in titles(fleet) if "a down" in title]


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


def test_a_live_model_that_is_down_is_one_entry_until_it_is_back(fleet: Fleet) -> None:
    """One critical message within a minute; the end is told in the same entry."""
    break_engine(fleet)
    until(fleet, lambda: bool(entries(fleet, "live-down")), TOLD_WITHIN_S)
    (down,) = entries(fleet, "live-down")
    assert down["shown"]["title"].startswith("▼ a down: ")
    assert down["shown"]["priority"] == 5
    assert "Do: appliance" in down["shown"]["message"]
    mend_engine(fleet)
    until(
        fleet,
        lambda: "serves again" in entries(fleet, "live-down")[0]["shown"]["title"],
        PATIENCE_S,
    )
    (over,) = entries(fleet, "live-down")
    assert (over["sequence_id"], over["shown"]["priority"]) == (down["sequence_id"], 3)
    assert over["messages"] == 2


def test_a_frozen_engine_is_told_though_it_says_that_all_is_well(fleet: Fleet) -> None:
    """SIGSTOP of the process that answers, with a request in flight: told within 90 s."""
    until(fleet, lambda: is_answered(fleet), PATIENCE_S)
    main = fleet.main_pid("a")
    worker = fleet.box.run(f"cat /proc/{main}/task/{main}/children").stdout.split()[0]
    fleet.box.run("kill", "-STOP", worker)
    with ask_streaming(fleet.box, GATEWAY, "x", model="a") as waiting:
        until(fleet, lambda: bool(entries(fleet, "no-progress")), FROZEN_WITHIN_S)
        assert waiting.process.poll() is None
        fleet.box.run("curl -sf http://127.0.0.1:9001/health")
        fleet.box.run("kill", "-CONT", worker)
        waiting.process.wait(30)
    until(
        fleet,
        lambda: entries(fleet, "no-progress")[0]["shown"]["priority"] == 3,
        PATIENCE_S,
    )


def test_a_standby_model_that_is_down_is_told_to_nobody(fleet: Fleet) -> None:
    """The same death is known, and held back by the mark."""
    fleet.box.run("appliance mark a standby")
    before = down_titles(fleet)
    break_engine(fleet)
    until(fleet, lambda: "mark" in gates(fleet, "a"), PATIENCE_S)
    # Shorter than three restarts, 5 s apart, which would be a crash loop for some time to come.
    time.sleep(MINUTE_S / 2)  # real time: nothing is to come
    mend_engine(fleet)
    until(fleet, lambda: fleet.active() == ["a"], PATIENCE_S)
    time.sleep(MINUTE_S / 2)  # real time: two good looks, so that no alert of it is left to tell
    fleet.box.run("appliance mark a live")
    assert down_titles(fleet) == before


def test_a_retired_service_is_told_to_nobody(fleet: Fleet) -> None:
    """The entry stays in the settings, and the service dead: the mark decides, and no document."""
    fleet.box.run("systemctl stop wiki.service")
    until(fleet, lambda: bool(entries(fleet, "watch-down")), TOLD_WITHIN_S)
    fleet.box.run("appliance mark wiki retired")
    until(fleet, lambda: "wiki" not in fleet.box.run("appliance alerts").stdout, PATIENCE_S)
    time.sleep(MINUTE_S)  # real time: nothing is to come
    (entry,) = entries(fleet, "watch-down")
    assert entry["messages"] == 1


def test_a_switch_that_fails_is_told_and_the_switch_itself_is_not(fleet: Fleet) -> None:
    """The model that could not be started is told; that the other was away meanwhile is not."""
    before = len(titles(fleet))
    assert fleet.cli("switch", "b").exit == 10
    until(fleet, lambda: bool(entries(fleet, "switch-failed")), TOLD_WITHIN_S)
    time.sleep(MINUTE_S / 2)  # real time: nothing else is to come
    assert [one for one in titles(fleet)[before:] if " b " not in one] == []


def test_a_supervisor_in_a_crash_loop_is_told(fleet: Fleet) -> None:
    """The agent sees it without the supervisor, and its symptoms are not told beside it."""
    for _ in range(4):
        fleet.box.run("systemctl kill -s KILL appliance-supervisor.service")
        fleet.box.wait_for("systemctl is-active -q appliance-supervisor.service", timeout_s=20)
        time.sleep(0.5)  # real time: each restart is to be one that a look can count
    until(fleet, lambda: bool(entries(fleet, "supervisor-down")), TOLD_WITHIN_S)
    assert "supervisor" in entries(fleet, "supervisor-down")[0]["shown"]["title"]
