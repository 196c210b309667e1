"""Units that apply writes under a real systemd, and apply as a unit."""

import json
from collections.abc import Iterator

import pytest

from tests.system.fleet import ENGINE, PROFILES, Fleet
from tests.system.rig import Box, Image

ARGUMENTS = ["$HOME", "${HOME}", "100%", "%n", "a \"b\" 'c'", "back\\slash\\", "x y", ";", "", "é→"]
VALUES = {
    "PLAIN": "1",
    "DOLLAR": "$HOME ${HOME} $$",
    "PERCENT": "%n 100%",
    "QUOTES": "a \"b\" 'c' \\",
}
UNIT = "appliance-backend-a.service"


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


def test_arguments_and_variables_reach_the_engine_as_the_profile_has_them(fleet: Fleet) -> None:
    """An argument is not split, expanded or unescaped on the way through the unit file."""
    env = "".join(f"{name} = {json.dumps(value)}\n" for name, value in VALUES.items())
    deaf = f"import runpy, sys; sys.argv[2:] = []; runpy.run_path({ENGINE!r}, None, '__main__')"
    argv = ["/usr/bin/python3", "-S", "-c", deaf, "{port}", *ARGUMENTS]
    fleet.box.write(
        f"{PROFILES}/a.toml",
        f'engine = "command"\nport = 9001\ngpus = []\n[command]\nargv = {json.dumps(argv)}\n'
        f"[env]\n{env}",
    )
    fleet.apply()
    fleet.box.run("systemctl", "start", UNIT)
    pid = fleet.main_pid("a")
    given = fleet.box.run(f"cat /proc/{pid}/cmdline").stdout.split("\0")[:-1]
    assert given == [*argv[:4], "9001", *ARGUMENTS]
    environment = fleet.box.run(f"cat /proc/{pid}/environ").stdout.split("\0")
    assert {f"{name}={value}" for name, value in VALUES.items()} <= set(environment)


def test_apply_works_as_a_unit_that_the_daemon_may_start(fleet: Fleet) -> None:
    """Inside its sandbox it installs units and the rule, and makes systemd read them."""
    fleet.pair()
    fleet.profile("c", 9003)
    assert fleet.job("start appliance-apply.service", "appliance").startswith("job ")
    fleet.box.wait_for("test -e /etc/systemd/system/appliance-backend-c.service")
    fleet.box.wait_for('test -z "$(systemctl list-jobs --no-legend)"')
    shown = fleet.box.run("systemctl show -P Conflicts appliance-backend-c.service").stdout
    assert {UNIT, "appliance-hold.service"} <= set(shown.split())
    assert fleet.job("start appliance-backend-c.service", "appliance").startswith("job ")
    fleet.wait_serving("c")


def test_the_daemon_may_touch_nothing_else(fleet: Fleet) -> None:
    """Not another unit, not a unit whose name only begins like one of ours, not a transient one."""
    fleet.pair()
    fleet.box.unit("ssh.service", "[Service]\nExecStart=/bin/sleep 60\n")
    fleet.box.unit("appliance-backend-a2.service", "[Service]\nExecStart=/bin/sleep 60\n")
    fleet.box.run("systemctl daemon-reload")
    for command in (
        "systemctl stop ssh.service",
        "systemctl start appliance-backend-a2.service",
        "systemd-run --unit=appliance-backend-b.service /bin/true",
        "systemctl daemon-reload",
    ):
        done = fleet.box.run(command, user="appliance", check=False)
        assert done.returncode != 0, command


def test_a_running_model_keeps_its_process_through_an_apply(fleet: Fleet) -> None:
    """A unit is replaced and read again by systemd, and its engine does not notice."""
    fleet.pair()
    fleet.box.run("systemctl", "start", UNIT)
    pid = fleet.main_pid("a")
    fleet.profile("a", 9001, tables='[unit]\nService.OOMScoreAdjust = "77"\n')
    assert "appliance restart a" in fleet.apply()
    assert fleet.main_pid("a") == pid
    assert fleet.box.run(f"systemctl show -P OOMScoreAdjust {UNIT}").stdout == "77\n"
    assert fleet.box.run(f"systemctl show -P NeedDaemonReload {UNIT}").stdout == "no\n"


def test_a_touched_profile_is_forgiven_by_the_next_apply(fleet: Fleet) -> None:
    """A newer SourcePath= is a warning, and no longer one after an apply without changes."""
    fleet.pair()
    fleet.box.run("systemctl", "start", UNIT)
    need = f"systemctl show -P NeedDaemonReload {UNIT}"
    fleet.box.run("sleep 1.1; touch /etc/appliance/profiles/a.toml")
    assert fleet.box.run(need).stdout == "yes\n"
    assert "nothing to change" in fleet.apply()
    assert fleet.box.run(need).stdout == "no\n"


def test_a_model_in_a_home_is_all_that_is_seen_of_it(fleet: Fleet) -> None:
    """The home is empty but for what the profile names, and that cannot be written."""
    fleet.people()
    fleet.box.run("install -d -m 700 -o ana -g ana /home/ana; mkdir -p /home/ana/m")
    fleet.box.run("echo weights >/home/ana/m/w; echo secret >/home/ana/secret")
    fleet.profile("a", 9001, top='gpus = []\nmodel = "/home/ana/m/w"')
    fleet.apply()
    fleet.box.run("systemctl", "start", UNIT)
    inside = f"nsenter -t {fleet.main_pid('a')} -m"
    assert fleet.box.run(f"{inside} cat /home/ana/m/w").stdout == "weights\n"
    assert fleet.box.run(f"{inside} ls -A /home /home/ana").stdout.split() == [
        *("/home:", "ana", "/home/ana:", "m"),
    ]
    assert fleet.box.run(f"{inside} touch /home/ana/m/w", check=False).returncode != 0


def test_a_hold_stops_every_backend_in_good_order(fleet: Fleet) -> None:
    """Also two at once: no ordering cycle is found, none is killed."""
    fleet.profile("a", 9001)
    fleet.profile("b", 9002, top="gpus = []\nshared = true")
    fleet.apply()
    fleet.box.run("systemctl", "start", UNIT, "appliance-backend-b.service")
    assert fleet.active() == ["a", "b"]
    fleet.box.run("systemctl", "start", "appliance-hold.service")
    assert fleet.active() == []
    assert "cycle" not in fleet.box.journal().lower()
    fleet.box.run("systemctl", "start", UNIT)
    state = fleet.box.run("systemctl is-active appliance-hold.service", check=False).stdout
    assert state == "inactive\n"


def test_undeclared_configuration_reaches_no_engine(fleet: Fleet) -> None:
    """A file in /etc/llama.cpp, or one that an earlier run left, is not read by the next run."""
    fleet.profile("a", 9001)
    fleet.apply()
    fleet.box.write("/etc/llama.cpp/config.ini", "api-key = x\n")
    fleet.box.run("systemctl", "start", UNIT)
    pid = fleet.main_pid("a")
    inside = f"nsenter -t {pid} -m"
    assert fleet.box.run(f"{inside} cat /etc/llama.cpp/config.ini", check=False).returncode != 0
    given = fleet.box.run(f"cat /proc/{pid}/environ").stdout.split("\0")
    variables = dict(v.split("=", 1) for v in given if "=" in v)
    assert variables["PYTHONNOUSERSITE"] == "1"
    # As the engine itself, with its user and its view of the files.
    uid, gid = fleet.box.run(f"stat -c '%u %g' /proc/{pid}").stdout.split()
    engine = f"{inside} setpriv --reuid {uid} --regid {gid} --clear-groups"
    config = variables["XDG_CONFIG_HOME"]
    assert fleet.box.run(f"{engine} mkdir -p {config}/llama.cpp", check=False).returncode != 0
    assert fleet.box.run(f"{engine} ls {config}", check=False).returncode != 0
    assert fleet.box.run(f"{engine} mkdir -p {variables['HOME']}/.config").returncode == 0
