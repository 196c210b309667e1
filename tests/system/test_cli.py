"""The command line on a real systemd: with the supervisor down, broken, and out of reach."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from tests.system.fleet import OPERATOR, STRANGER, Fleet
from tests.system.rig import Box, Image

UNITS = "appliance-supervisor.socket appliance-supervisor.service"
NOT_RUNNING = "supervisor not running: sudo systemctl start appliance-supervisor"


@pytest.fixture(scope="module")
def unsupervised(image: Image) -> Iterator[Fleet]:
    """A box where a serves and nobody supervises; no test changes it."""
    with Box(image, disk="/var/lib/appliance") as box:
        fleet = Fleet(box)
        fleet.pair()
        fleet.switch("a")
        box.run(f"systemctl stop {UNITS}")
        yield fleet


@pytest.fixture
def fleet(shared_fleet: Fleet) -> Fleet:
    """The box of the other tests, a serving."""
    return shared_fleet


def states(document: Mapping[str, Any]) -> dict[str, str]:
    return {row["name"]: row["state"] for row in document["profiles"]}


def test_what_works_without_supervisor(fleet: Fleet) -> None:
    """Verbs that only read use systemd instead, and say why."""
    up = fleet.status()
    fleet.box.run(f"systemctl stop {UNITS}")
    down = fleet.status()
    assert states(up) == states(down) == {"a": "serving", "b": "stopped"}
    assert up["verdict"] == {"state": "serving", "exit": 0, "why": []}
    assert down["verdict"]["exit"] == 1
    assert down["verdict"]["why"] == [NOT_RUNNING]
    seen, told = up["profiles"][0], down["profiles"][0]
    for key in ("committed", "main_pid", "status_text", "claim", "edited_since_apply"):
        assert seen[key] == told[key], key
    # systemctl rounds to seconds.
    assert seen["since_unix_s"] == pytest.approx(told["since_unix_s"], abs=1.0)
    for verb in ("list", "show a", "show a --unit", "show a --config", "wait", "version"):
        done = fleet.box.run(f"appliance {verb}", check=False)
        assert done.returncode == 0, (verb, done)
    assert "appliance-backend-a" in fleet.box.run("appliance logs a -n 1000 --json").stdout


def test_status_without_supervisor_tells_a_stopped_and_a_failed_model(fleet: Fleet) -> None:
    """A model that is down is told from one that crashed, by systemd alone."""
    fleet.box.run(f"systemctl stop {UNITS} appliance-backend-a")
    stopped = fleet.box.run("appliance status", check=False)
    assert stopped.returncode == 3
    assert "stopped" in stopped.stdout
    fleet.profile("bad", 9003, "--die")
    fleet.apply()
    fleet.box.run("systemctl start appliance-backend-bad", check=False)
    assert states(fleet.status())["bad"] in {"failed", "restarting"}


def test_a_stop_by_hand_and_a_rival_by_hand_are_told_apart(fleet: Fleet) -> None:
    """A committed model that was stopped needs a start, one that was evicted a switch."""
    fleet.box.run("systemctl stop appliance-backend-a")
    told = " | ".join(fleet.status()["verdict"]["why"])
    assert told == "a is committed but stopped (stopped by hand): appliance start a"
    fleet.box.run(f"systemctl stop {UNITS}")
    # systemd forgets a unit that ended well once no supervisor watches it.
    told = " | ".join(fleet.status()["verdict"]["why"])
    assert "a is committed but stopped: appliance start a" in told
    fleet.box.run("systemctl start appliance-supervisor.socket appliance-backend-b")
    fleet.wait_serving("b")
    document = fleet.status()
    assert document["profiles"][0]["note"] is None
    assert "a is committed but stopped: appliance switch a" in document["verdict"]["why"]


def test_a_hold_by_hand_ends_with_a_boot(fleet: Fleet) -> None:
    """A person who starts the hold unit is told how long the hold lasts, and that is true."""
    fleet.box.run("systemctl start appliance-hold.service")
    assert fleet.status()["hold"] == {
        "until_unix_s": None,
        "kept": False,
        "requested_by": None,
    }
    assert fleet.status()["verdict"]["why"] == [
        "held by hand until a switch, a start or a boot: appliance start ends it"
    ]
    fleet.box.reboot()
    fleet.wait_serving("a", timeout_s=30)
    assert fleet.status()["hold"] is None


@pytest.mark.parametrize(
    ("verb", "instead"),
    [
        ("switch b", "(or, without it: sudo systemctl start appliance-backend-b)"),
        ("start b", "(or, without it: sudo systemctl start appliance-backend-b)"),
        ("stop", ""),
        ("restart a", "(or, without it: sudo systemctl restart appliance-backend-a)"),
        ("hold", "(or, without it: sudo systemctl start appliance-hold.service)"),
        ("cancel", ""),
        ("mark a live", ""),
    ],
)
def test_what_needs_the_supervisor(unsupervised: Fleet, verb: str, instead: str) -> None:
    """A verb that needs the supervisor changes nothing and says what to do."""
    done = unsupervised.box.run(f"appliance {verb}", check=False)
    assert done.returncode == 69
    assert done.stderr.startswith(NOT_RUNNING)
    assert instead in done.stderr
    assert unsupervised.active() == ["a"]


def test_the_advice_works(fleet: Fleet) -> None:
    """The command that is recommended does what the sentence says."""
    fleet.box.run(f"systemctl stop {UNITS}")
    fleet.box.run("systemctl start appliance-backend-b")
    fleet.wait_serving("b")
    fleet.box.run("systemctl start appliance-supervisor")
    fleet.switch("a")


def test_a_supervisor_that_cannot_start_is_not_waited_for(fleet: Fleet) -> None:
    """The socket is systemd's and accepts; a daemon that dies behind it ends the wait."""
    fleet.box.write(
        "/etc/systemd/system/appliance-supervisor.service.d/broken.conf",
        "[Service]\nExecStart=\nExecStart=/bin/false\n",
    )
    fleet.box.run("systemctl daemon-reload; systemctl stop appliance-supervisor.service")
    done = fleet.box.run("appliance cancel", check=False, timeout_s=20)
    assert done.returncode == 69, done
    assert fleet.box.run("appliance status", check=False).returncode == 1
    assert fleet.active() == ["a"]


def test_who_may_ask(fleet: Fleet) -> None:
    """An operator may switch; a stranger is told how to become one, and may still look."""
    fleet.people()
    assert fleet.cli("switch", "b", user=OPERATOR).exit == 0
    refused = fleet.box.run("appliance switch a", user=STRANGER, check=False)
    assert refused.returncode == 77
    assert refused.stderr.startswith(
        "permission denied: sudo usermod -aG appliance-operators $USER, then log in again"
    )
    assert fleet.active() == ["b"]
    looked = fleet.box.run("appliance status --json", user=STRANGER, check=False)
    document = json.loads(looked.stdout)
    assert (looked.returncode, document["verdict"]["state"]) == (0, "serving")
    assert document["supervisor"]["state"] == "up"
    for verb in ("apply", "edit a"):
        denied = fleet.box.run(f"appliance {verb}", user=STRANGER, check=False)
        assert denied.returncode == 77, denied


def test_who_may_read_the_journal(fleet: Fleet) -> None:
    """A user who may not is told the group that may, with status 77; a member of it reads."""
    fleet.people()
    denied = fleet.box.run("appliance logs", user=STRANGER, check=False)
    assert (denied.returncode, denied.stdout) == (77, "")
    assert denied.stderr == (
        "permission denied: sudo usermod -aG systemd-journal $USER, then log in again"
        " (or sudo appliance logs)\n"
    )
    fleet.box.run(f"usermod -aG systemd-journal {STRANGER}")
    assert "appliance-supervisor" in fleet.box.run("appliance logs", user=STRANGER).stdout


def test_edit_on_a_real_box(fleet: Fleet) -> None:
    """An edit is applied, the running model keeps its process, and the status says so."""
    before = fleet.main_pid("a")
    done = fleet.box.run("EDITOR='sed -i s/test/edited/' appliance edit a --yes")
    assert "+description" in done.stdout
    assert fleet.main_pid("a") == before
    assert fleet.status()["profiles"][0]["description"] == "edited"
