"""Overrides in [unit] under a real systemd: those that are refused, and those accepted."""

import json
import re
from collections.abc import Iterator
from random import Random
from typing import Final

import pytest

from appliance.switch.units.overrides import COMMAND
from tests.fakes.override_samples import SAMPLES
from tests.system.fleet import PROFILES, Fleet
from tests.system.rig import Box, Image

MARK: Final = "/etc/attacked"
TOUCH: Final = f"/usr/bin/touch {MARK}"
ATTACKS: Final = (
    {"Service.ExecStartPost": f"/bin/true ; +{TOUCH}"},
    {"Service.ExecStartPost": f"  +{TOUCH}"},
    {"Service.ExecStartPost": f'"+{TOUCH.partition(" ")[0]}" {MARK}'},
    {"Service.ExecStartPost": f'"\\x2b{TOUCH.partition(" ")[0]}" {MARK}'},
    {"Service.ExecStopPost": f"/bin/true ; -!!+{TOUCH}"},
    {"Service.ExecStartPost": TOUCH, "Service.PermissionsStartOnly": "yes"},
    {"Unit.BindTo": "appliance-gateway.service"},
    {"Unit.PropagatesStopTo": "appliance-gateway.service"},
    {"Unit.SuccessAction": "reboot"},
    {"Unit.Wants": "reboot.target"},
    {"Service.TemporaryFileSystem": "/run/appliance-leases"},
    {"Service.RestartForceExitStatus": "78 79"},
    {"Service.NetworkNamespacePath": "/proc/1/ns/net"},
    {"Service.StandardOutput": f"truncate:{MARK}"},
    {"Service.PAMName": "login"},
    {"Service.SystemCallFilter": ""},
    {"Service.LoadCredential": "x:/etc/shadow"},
)
PIECES: Final = (
    *("/bin/true", "/bin/sh", "-", "@", ":", "+", "!", ";", " ", " ", " ", "\t", '"', "'", "\\"),
    *("\\x2b", "\\;", "%n", "%%", "%h", "$$", "a b", "-c", "x", "#", "\u00a0"),
)
"""Parts from which commands are drawn."""


@pytest.fixture(scope="module")
def shared(image: Image) -> Iterator[Fleet]:
    """A box without profiles."""
    with Box(image, disk="/var/lib/appliance") as box:
        fleet = Fleet(box)
        fleet.keep()
        yield fleet


@pytest.fixture
def fleet(shared: Fleet) -> Fleet:
    """Shared box, on which no model runs."""
    shared.restore(None)
    return shared


def table(overrides: dict[str, str] | dict[str, list[str]]) -> str:
    """A profile's [unit]."""
    return "[unit]\n" + "".join(
        f"{json.dumps(k)} = {json.dumps(v)}\n" for k, v in overrides.items()
    )


def test_no_override_acts_as_root_or_on_others(fleet: Fleet) -> None:
    """Each attack is refused by name, leaves no unit, and touches nothing when it is started."""
    for number, attack in enumerate(ATTACKS):
        fleet.profile(f"x{number}", 9001 + number, tables=table(attack))
    fleet.profile("good", 9100)
    done = fleet.box.run("appliance", "apply", check=False)
    for number in range(len(ATTACKS)):
        fleet.box.run(f"systemctl start appliance-backend-x{number}.service", check=False)
        fleet.box.run(f"systemctl stop appliance-backend-x{number}.service", check=False)
    assert fleet.box.run(f"ls {MARK}", check=False).returncode != 0
    assert done.returncode == 78
    for number, attack in enumerate(ATTACKS):
        # The last key of an attack is the one that makes it one.
        assert f"x{number}.toml:" in done.stderr
        assert list(attack)[-1] in done.stderr
    units = fleet.box.run("ls /etc/systemd/system").stdout.split()
    assert [u for u in units if u.startswith("appliance-backend-")] == [
        "appliance-backend-good.service"
    ]


def test_every_allowed_override_is_understood(fleet: Fleet) -> None:
    """A real systemd parses every sample of every allowed key without a complaint."""
    for number in range(max(len(values) for values in SAMPLES.values())):
        values = {k: v[min(number, len(v) - 1)] for k, v in SAMPLES.items()}
        fleet.profile(f"s{number}", 9001 + number, tables=table(values))
    fleet.profile("odd", 9100)
    fleet.apply()
    fleet.box.run("echo TasksMax=many >>/etc/systemd/system/appliance-backend-odd.service")
    fleet.box.run(
        "systemctl daemon-reload; cd /etc/systemd/system; systemctl show -P Id appliance-*"
    )
    lines = fleet.box.journal().splitlines()
    told = [line for line in lines if "/etc/systemd/system/appliance-backend-" in line]
    # The one with a mistake shows that mistakes are told.
    assert told
    assert all("appliance-backend-odd" in line for line in told), told


def test_systemd_reads_an_accepted_command_as_one_without_privileges(fleet: Fleet) -> None:
    """400 drawn commands that the grammar accepts are 400 unprivileged commands to systemd."""
    random = Random(20261122)  # noqa: S311 - drawn alike in every run
    accepted: list[str] = []
    while len(accepted) < 400:
        value = "".join(random.choices(PIECES, k=random.randint(1, 10))).strip(" \t")
        if COMMAND.accepts(value):
            accepted.append(value)
    groups = [accepted[i : i + 20] for i in range(0, len(accepted), 20)]
    for number, group in enumerate(groups):
        commands = "".join(f"ExecStopPost={value}\n" for value in group)
        fleet.box.unit(f"drawn{number}.service", f"[Service]\nExecStart=/bin/true\n{commands}")
    fleet.box.run("systemctl daemon-reload")
    for number, group in enumerate(groups):
        shown = fleet.box.run(f"systemctl show -p ExecStopPostEx drawn{number}.service").stdout
        flags = re.findall(r" ; flags=([a-z -]*) ; start_time=", shown)
        assert len(flags) == len(group), (group, shown)
        assert {word for text in flags for word in text.split()} <= {
            "ignore-failure",
            "no-env-expand",
        }


def test_a_refused_edit_is_not_adopted(fleet: Fleet) -> None:
    """The hand edit stays in the unit, and the profile does not learn of it."""
    fleet.profile("a", 9001)
    fleet.apply()
    unit, profile = "/etc/systemd/system/appliance-backend-a.service", f"{PROFILES}/a.toml"
    before = fleet.box.run("cat", profile).stdout
    fleet.box.run(f"printf '[Service]\\nExecStopPost=/bin/true ; +{TOUCH}\\n' >>{unit}")
    edited = fleet.box.run("cat", unit).stdout
    done = fleet.box.run("appliance apply --adopt-changes", check=False)
    assert done.returncode == 1
    assert "cannot be kept in a profile: Service.ExecStopPost" in done.stdout
    assert fleet.box.run("cat", unit).stdout == edited
    assert fleet.box.run("cat", profile).stdout == before
