"""Privileges: operators switch, strangers look, the daemon tends its own units, root applies."""

from collections.abc import Iterator

import pytest

from appliance.model.names import GATEWAY_USER
from tests.system.chat import ask
from tests.system.fleet import OPERATOR, PROFILES, STRANGER, Fleet
from tests.system.rig import Box, Image
from tests.system.rig.appliance import CHECKOUT

DAEMON = "appliance"
BACKEND = "appliance-backend"
NOT_A_MEMBER = "permission denied: sudo usermod -aG appliance-operators $USER, then log in again"
SLEEP = "[Service]\nExecStart=/bin/sleep 600\n"
FOREIGN = ("ssh.service", "appliance-backend-evil.service", "appliance-backend-a-evil.service")
"""Foreign units: an ordinary service, and two whose names only begin like those of backends."""
CANARY = "xylophonist"
MODES = ("replace", "fail", "flush", "isolate", "replace-irreversibly", "ignore-dependencies")

MUTATIONS = [
    ("switch", "b"),
    ("switch", "b", "--dry-run"),
    ("start", "b"),
    ("stop", "a"),
    ("stop",),
    ("restart", "a"),
    ("hold",),
    ("hold", "--for", "1s"),
    ("cancel",),
    ("mark", "b", "live"),
]


@pytest.fixture(scope="module")
def fleet(image: Image) -> Iterator[Fleet]:
    """A box with an operator, a stranger, foreign units, and the profile a serving."""
    with Box(image) as box:
        fleet = Fleet(box)
        fleet.people()
        for unit in FOREIGN:
            box.write(f"/usr/local/lib/systemd/system/{unit}", SLEEP)
        fleet.pair()
        box.run("systemctl", "start", *FOREIGN)
        fleet.switch("a")
        yield fleet


def state(fleet: Fleet) -> str:
    """Return all state that a person without rights must not be able to change."""
    return fleet.box.run(
        "systemctl show -P MainPID -P ActiveState appliance-backend-a ssh appliance-hold;"
        "systemctl show -P MainPID appliance-supervisor;"
        "systemctl list-units --plain --no-legend 'appliance-backend-*' 'run-*' | sort;"
        "cat /etc/systemd/system/*.service /var/lib/appliance/active | sha256sum;"
        "cat /etc/polkit-1/rules.d/* /var/lib/appliance-applied/manifest.json | sha256sum"
    ).stdout


def serving(fleet: Fleet) -> list[str]:
    """Profiles that serve; foreign units with names like theirs are none."""
    return sorted({"a", "b"} & set(fleet.active()))


def test_operator_needs_no_root(fleet: Fleet) -> None:
    """A member of appliance-operators runs every verb that changes what serves."""
    for words in (
        ("mark", "b", "live"),
        ("switch", "b", "--dry-run"),
        ("switch", "b"),
        ("restart", "b"),
        ("stop", "b"),
        ("start", "b"),
        ("hold",),
        ("cancel",),
        ("start",),
        ("wait",),
    ):
        answer = fleet.cli(*words, user=OPERATOR)
        assert answer.exit == 0, (words, answer)
    assert serving(fleet) == fleet.committed() == ["b"]
    fleet.switch("a", user=OPERATOR)


@pytest.mark.parametrize("words", MUTATIONS, ids=" ".join)
def test_stranger_changes_nothing(fleet: Fleet, words: tuple[str, ...]) -> None:
    """A person who is no member is told how to become one, with status 77."""
    before = state(fleet)
    answer = fleet.cli(*words, user=STRANGER)
    assert (answer.exit, answer.errors) == (77, f"{NOT_A_MEMBER}\n")
    assert answer.result == {"event": "error", "exit": 77, "message": NOT_A_MEMBER}
    assert state(fleet) == before


@pytest.mark.parametrize("words", ["status", "list", "show a", "wait a --timeout 5s"])
def test_stranger_may_look(fleet: Fleet, words: str) -> None:
    """Facts that systemd tells every user need no membership."""
    done = fleet.box.run(f"appliance {words}", user=STRANGER, check=False)
    assert (done.returncode, done.stdout.count("serving") > 0) == (0, True), done


def test_daemon_tends_our_units(fleet: Fleet) -> None:
    """The daemon's user may start and stop our backends and the hold."""
    for request in (
        "stop appliance-backend-a.service",
        "start appliance-hold.service",
        "stop appliance-hold.service",
        "start appliance-backend-a.service",
    ):
        assert fleet.job(request, DAEMON).startswith("job /org/freedesktop/systemd1/job/")
        fleet.box.wait_for('test -z "$(systemctl list-jobs --no-legend)"')
    assert serving(fleet) == ["a"]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("verb", ["start", "stop", "restart"])
def test_daemon_chooses_no_job_mode(fleet: Fleet, verb: str, mode: str) -> None:
    """No mode of a job is its to choose, on its own units too: `flush` cancels others' jobs."""
    before = state(fleet)
    command = f"systemctl {verb} --job-mode={mode} appliance-backend-b.service"
    done = fleet.box.run(command, user=DAEMON, check=False)
    assert done.returncode != 0, done
    assert state(fleet) == before


@pytest.mark.parametrize(
    "request_",
    [
        "start ssh.service",
        "start appliance-backend-evil.service",
        "start appliance-backend-b.service flush",
        "isolate appliance-backend-b.service",
        "start reboot.target",
    ],
)
def test_no_other_job_is_queued(fleet: Fleet, request_: str) -> None:
    """The program that queues jobs takes starts and stops of applied units, and no mode."""
    before = state(fleet)
    assert fleet.job(request_, DAEMON).startswith("error org.freedesktop.DBus.Error.AccessDenied")
    assert state(fleet) == before


@pytest.mark.parametrize("user", [BACKEND, GATEWAY_USER, OPERATOR, STRANGER])
def test_nobody_else_has_jobs_queued(fleet: Fleet, user: str) -> None:
    """The job socket is the daemon's alone."""
    assert "PermissionError" in fleet.job("stop appliance-backend-a.service", user)
    assert serving(fleet) == ["a"]


@pytest.mark.parametrize(
    "command",
    [
        *(
            f"systemctl {verb} {unit}"
            for unit in FOREIGN
            for verb in ("start", "stop", "restart", "reset-failed", "kill")
        ),
        "systemctl start appliance-backend-x.service",
        "systemctl restart appliance-supervisor.service",
        "systemctl start appliance-boot.service",
        "systemctl start reboot.target",
        "systemctl isolate rescue.target",
        "systemctl kill appliance-backend-a.service",
        "systemctl reset-failed appliance-backend-a.service",
        "systemctl set-property --runtime appliance-backend-a.service CPUQuota=1%",
        "systemctl enable ssh.service",
        "systemctl mask --runtime appliance-backend-b.service",
        "systemctl link /dev/shm/appliance-backend-b.service",
        "systemctl daemon-reload",
        "systemctl daemon-reexec",
        "systemctl set-environment LD_PRELOAD=/dev/shm/x.so",
        "systemd-run /bin/true",
        "systemd-run --unit=appliance-backend-b.service /bin/true",
        "systemd-run --unit=appliance-hold.service /bin/true",
        "systemd-run --scope /bin/true",
    ],
)
def test_daemon_touches_nothing_else(fleet: Fleet, command: str) -> None:
    """No other unit, no other verb, no transient unit, not the manager itself."""
    before = state(fleet)
    done = fleet.box.run(command, user=DAEMON, check=False)
    assert done.returncode != 0
    refusal = ("interactive authentication", "access denied", "not found", "permission denied")
    assert any(words in done.stderr.lower() for words in refusal), done.stderr
    assert state(fleet) == before


@pytest.mark.parametrize("user", [BACKEND, GATEWAY_USER, OPERATOR, STRANGER])
def test_nobody_else_has_the_daemons_rights(fleet: Fleet, user: str) -> None:
    """Engines, operators and strangers command no unit past the supervisor."""
    before = state(fleet)
    for command in (
        "systemctl stop appliance-backend-a.service",
        "systemctl start appliance-hold.service",
        "systemctl start appliance-apply.service",
    ):
        assert fleet.box.run(command, user=user, check=False).returncode != 0, command
    assert state(fleet) == before


@pytest.mark.parametrize("user", [DAEMON, GATEWAY_USER, BACKEND])
@pytest.mark.parametrize(
    "path",
    [
        "/etc/systemd/system/appliance-backend-a.service",
        "/etc/systemd/system/appliance-backend-a.service.d",
        "/etc/polkit-1/rules.d/50-appliance.rules",
        f"{PROFILES}/a.toml",
        f"{PROFILES}/new.toml",
        "/etc/appliance/appliance.toml",
        "/var/lib/appliance-applied/manifest.json",
        "/var/lib/appliance-applied/units",
        "/run/appliance-leases/cpu",
        "/run/appliance-gate/b.json",
    ],
)
def test_services_write_nothing_that_root_reads(fleet: Fleet, user: str, path: str) -> None:
    """Files that apply, the gate and systemd read can be neither changed nor replaced."""
    try_it = f"touch {path} || mv {path} {path}.old || echo x >>{path} || mkdir {path}"
    assert fleet.box.run(try_it, user=user, check=False).returncode != 0


@pytest.mark.parametrize("user", [OPERATOR, STRANGER, DAEMON, GATEWAY_USER, BACKEND])
def test_only_root_applies(fleet: Fleet, user: str) -> None:
    """A user who is not root cannot install units or edit a profile; 77 and the command to use."""
    before = state(fleet)
    for words in ("apply", "apply --discard", "apply --adopt-changes", "edit a --yes"):
        done = fleet.box.run(f"EDITOR=true appliance {words}", user=user, check=False)
        assert done.returncode == 77, words
        assert done.stderr == f"permission denied: sudo appliance {words.split(' --')[0]}\n"
    assert state(fleet) == before


def test_an_engine_that_runs_as_an_operator_asks_nothing(fleet: Fleet) -> None:
    """`user = "ana"` gives an engine the groups of ana, and none of her rights."""
    engine = f"setpriv --reuid {OPERATOR} --regid {BACKEND} --groups appliance-operators,{BACKEND}"
    done = fleet.box.run(f"{engine} appliance switch b --dry-run", check=False)
    assert (done.returncode, "is an engine" in done.stdout + done.stderr) == (77, True), done


def test_journal_names_who_asked(fleet: Fleet) -> None:
    """A switch and a mark are logged with the kernel's credentials: name, uid and process id."""
    uid = fleet.box.run(f"id -u {OPERATOR}").stdout.strip()
    for words, told in (
        ("switch a", "switch a for"),
        ("mark b standby", "b is marked standby by"),
    ):
        shell = f"echo $$; exec appliance {words}"
        pid = fleet.box.run(shell, user=OPERATOR).stdout.split()[0]
        journal = fleet.box.journal("-u", "appliance-supervisor.service")
        assert f"{told} {OPERATOR} (uid {uid}, pid {pid})" in journal


def test_journal_is_searched_by_fields_and_explains(fleet: Fleet) -> None:
    """A profile's entries are found by its name, -x says what they mean, and status tells the story."""
    fleet.switch("b")
    fleet.switch("a")
    found = fleet.box.journal("APPLIANCE_PROFILE=b", "_SYSTEMD_UNIT=appliance-supervisor.service")
    assert "b serves" in found
    assert "b no longer serves" in found
    assert "b is marked" not in fleet.box.journal("APPLIANCE_PROFILE=b", "APPLIANCE_KIND=switch")
    explained = fleet.box.journal("APPLIANCE_EVENT=operation-done", "-x", "-n1")
    assert "(switch) is done" in explained
    assert "also after a reboot" in explained
    assert "INFO:" not in explained
    shown = fleet.box.run("systemctl status appliance-supervisor").stdout
    assert 'Status: "serving a"' in shown


def test_a_refused_start_is_an_event_of_its_unit(fleet: Fleet) -> None:
    """The gate ends at once; its entry has the fields and is found by the unit all the same."""
    fleet.box.run("systemctl stop appliance-backend-a")
    fleet.box.run("systemd-run --unit=holder flock -x /run/appliance-leases/cpu sleep 600")
    fleet.box.wait_for("! flock -xn /run/appliance-leases/cpu true")
    fleet.box.run("systemctl start appliance-backend-b", check=False)
    fleet.box.run("systemctl stop holder")
    unit = fleet.box.journal("-u", "appliance-backend-b", "APPLIANCE_EVENT=start-refused", "-x")
    assert "b refused: cpu is held by" in unit
    assert "The start of b was not admitted" in unit
    fleet.box.wait_for("systemctl -q is-active appliance-backend-a")
    fleet.box.run("appliance wait a --for serving")


def test_journal_tells_no_conversation(fleet: Fleet) -> None:
    """Neither a prompt nor its answer nor a variable of the profile reaches the journal."""
    text = (CHECKOUT / "profiles/smol.toml").read_text()
    fleet.box.write(f"{PROFILES}/smol.toml", f'{text}\n[env]\nTOKEN = "{CANARY}-variable"\n')
    fleet.apply()
    fleet.switch("smol")
    answer = ask(fleet.box, 8031, f"Tell me about the {CANARY}.", max_tokens=48, temperature=0)
    journal = fleet.box.journal("--output=cat")
    assert "smol is serving" in journal
    assert CANARY not in journal
    for sentence in filter(None, map(str.strip, answer.replace("\n", ".").split("."))):
        assert sentence not in journal
    fleet.switch("a")
