"""An engine that was taken over: what it can do to others, in exactly the sandbox of its unit."""

from collections.abc import Iterator

import pytest

from tests.system.fleet import PROFILES, Fleet
from tests.system.intrusion import described, intrude, succeeded
from tests.system.rig import Box, Image

OWN = frozenset({"take its own lease", "write its own state", "write its own cache"})
BETWEEN = frozenset(
    {
        "write its memory",
        "trace it",
        "signal it",
        "read its environment",
        "write its state",
        "read its state",
        "write its cache",
        "write its state through its root",
        "connect to its socket",
        "take its lease",
        "take its lease through its root",
        "take the lease of the CPU",
    }
)
"""Ways that one user for all engines, and all leases in sight, would open."""
LISTENER = """
import os, socket, time
os.umask(0o007)
listener = socket.socket(socket.AF_UNIX)
listener.bind("/run/appliance-backend/b/e.sock")
listener.listen()
time.sleep(60)
"""


@pytest.fixture
def fleet(gpu_image: Image) -> Iterator[Fleet]:
    """A box on which b serves on GPU 1, and a has served on GPU 0; every lease has its file."""
    with Box(gpu_image) as box:
        fleet = Fleet(box)
        fleet.gpu_profile("a", 9001, gpus=(0,), gib=1)
        fleet.gpu_profile("b", 9002, gpus=(1,), gib=1)
        fleet.profile("c", 9003)
        fleet.apply()
        for name in ("c", "a", "b"):
            fleet.box.run("appliance", "start", name)
        fleet.box.run("appliance stop a c; appliance key add phone")
        yield fleet


def intrusion(fleet: Fleet, *settings: str) -> dict[str, str]:
    """Return the findings of the intruder in place of a's engine."""
    user = fleet.box.run(f"stat -c %u /proc/{fleet.main_pid('b')}").stdout.strip()
    listening = ["systemd-run", "-q", f"--uid={user}", "--gid=appliance-backend"]
    fleet.box.run(*listening, "/usr/bin/python3", "-c", LISTENER)
    fleet.box.wait_for("test -S /run/appliance-backend/b/e.sock")
    for kind in ("lib", "cache"):
        fleet.box.run(f"install -o {user} -m 600 /dev/null /var/{kind}/appliance-backend/b/kept")
    fleet.await_command()
    return {**intrude(fleet, "appliance-backend-a", "b", *settings)}


def test_an_engine_reaches_no_other_engine(fleet: Fleet) -> None:
    """Neither its memory nor its files nor its socket nor its lease; its own it has."""
    found = intrusion(fleet)
    assert succeeded(found) == OWN, described(found)


def test_with_one_user_for_all_every_way_was_open(fleet: Fleet) -> None:
    """The same program as the user of all engines, with nothing hidden, shows that it can succeed."""
    fleet.box.write("/etc/appliance/appliance.toml", 'backend_user = "appliance-backend"\n')
    fleet.apply()
    fleet.box.run("appliance restart b")
    found = intrusion(
        fleet,
        "InaccessiblePaths=",
        "TemporaryFileSystem=",
        "BindPaths=",
        "BindReadOnlyPaths=",
        "ProtectProc=default",
        "SystemCallFilter=",
        "ProtectSystem=no",
        "SupplementaryGroups=",
    )
    assert succeeded(found) == BETWEEN | OWN - {"take its own lease"}, described(found)


def test_every_engine_has_a_uid_to_itself(fleet: Fleet) -> None:
    """Two engines that run at once have two uids, in the range that systemd gives out."""
    fleet.box.run("appliance start a")
    uids = [fleet.box.run(f"stat -c %u /proc/{fleet.main_pid(n)}").stdout for n in ("a", "b")]
    assert uids[0] != uids[1]
    assert all(61184 <= int(uid) <= 65519 for uid in uids)


def test_what_an_engine_kept_changes_hands_with_its_user(fleet: Fleet) -> None:
    """State of the time when all engines had one user is there, and the new user's; and back."""
    text = fleet.box.run(f"cat {PROFILES}/a.toml").stdout
    kept = "/var/lib/appliance-backend/a/kept"
    for user, owner in (("appliance-backend", "appliance-backend"), ("", "apl-a")) * 2:
        line = f'user = "{user}"\n' if user else ""
        fleet.box.write(f"{PROFILES}/a.toml", line + text)
        fleet.apply()
        fleet.box.run("appliance start a")
        fleet.box.run(f"test -e {kept} || install -o {owner} /dev/null {kept}")
        fleet.box.run(f"echo {owner} >>{kept}")
        assert fleet.box.run(f"stat -c %U {kept}").stdout.strip() == owner
        fleet.box.run("appliance stop a")
    assert fleet.box.run(f"cat {kept}").stdout.split() == ["appliance-backend", "apl-a"] * 2
