"""Bad input of every kind: one clear error, the right exit status, and nothing changed."""

import json
import re
import socket
import threading
from collections.abc import Iterator

import pytest

from tests.system.fleet import OPERATOR, PROFILES, STRANGER, Answer, Fleet
from tests.system.rig import Box, Image

ENGINE_TABLE = '[command]\nargv = ["/usr/bin/true", "{port}"]\nhealth = "/health"\n'
GOOD = f'engine = "command"\nport = 9009\ngpus = []\n{ENGINE_TABLE}'
CONTROL = "run/appliance/control.sock"


@pytest.fixture(scope="module")
def shared(image: Image) -> Iterator[Fleet]:
    """One box for all tests here: a serves, b is applied, and so it stays."""
    with Box(image) as box:
        fleet = Fleet(box)
        fleet.people()
        fleet.pair()
        fleet.switch("a")
        yield fleet


@pytest.fixture
def fleet(shared: Fleet) -> Iterator[Fleet]:
    """The box, in which the test changes nothing but profile files; those are removed after it."""
    before = state(shared)
    yield shared
    shared.box.run(
        f"cd {PROFILES} && find . -mindepth 1 ! -name a.toml ! -name b.toml -exec rm -rf {{}} +"
    )
    assert state(shared) == before


def state(fleet: Fleet) -> str:
    """Units, rule, manifest, commitment, processes: all that bad input must leave alone.

    What an apply found wrong it keeps in `faults.json`, for the status.
    """
    return fleet.box.run(
        "cd /; find etc/systemd/system etc/polkit-1 var/lib/appliance-applied -type f ! -name faults.json"
        " | sort | xargs sha256sum; sha256sum var/lib/appliance/active; ls var/lib/appliance/hold;"
        "systemctl show -P MainPID -P ActiveState -P InvocationID"
        " appliance-backend-a appliance-backend-b appliance-hold;"
        "systemctl show -P MainPID appliance-supervisor",
        check=False,
    ).stdout


def write(fleet: Fleet, name: str, content: str | bytes) -> None:
    """A file among the profiles, whatever its name and content."""
    path = fleet.box.root / PROFILES.lstrip("/") / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)


# --- profiles ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (
            GOOD.replace("gpus", "ctxsize = 1\ngpus"),
            ':3: unknown key "ctxsize"; did you mean "ctx"?',
        ),
        (GOOD.replace("9009", '"9009"'), ":2: port is a whole number"),
        (GOOD.replace("9009", "80"), ":2: port is at least 1024"),
        (GOOD.replace('"command"', '"comand"'), 'did you mean "command"?'),
        (GOOD.replace("[]", "true"), ":3: gpus true is neither"),
        (GOOD.replace('argv = ["', 'argv = ["--host", "0.0.0.0", "'), "bad.toml:"),
        (GOOD.replace("gpus = []", 'gpus = []\nuser = "root"'), "a backend never runs as root"),
        (
            GOOD.replace("gpus = []", 'gpus = []\ndescription = "x\\nExecStart=/bin/sh"'),
            "line break",
        ),
        (GOOD + '[unit]\n"Service.ExecStart" = "/bin/sh"\n', "Service.ExecStart"),
        (GOOD + '[unit]\n"Install.WantedBy" = "multi-user.target"\n', "Install"),
        (GOOD + "port = \n", "not TOML"),
        ("", '"engine" is missing'),
        (b"\x7fELF\x02\x01\x01\x00" + bytes(range(256)) * 64, "bad.toml"),
        (b"\xff\xfe" + GOOD.encode("utf-16-le"), "bad.toml"),
        (GOOD + "# " + "x" * (8 << 20), "larger than"),
        (GOOD + "x = " + "[" * 50_000, "nests deeper"),
    ],
    ids=[
        *("unknown-key", "wrong-type", "low-port", "unknown-engine", "wrong-gpus", "own-host"),
        *("root", "injection", "exec-start", "install", "no-toml", "empty", "binary", "utf-16"),
        *("huge", "nested"),
    ],
)
def test_bad_profile_is_refused(fleet: Fleet, content: str | bytes, fault: str) -> None:
    """`apply`, its rehearsal and `profile validate` say what is wrong, with status 78."""
    write(fleet, "bad.toml", content)
    for words in ("apply", "apply --dry-run", "profile validate bad"):
        done = fleet.box.run(f"appliance {words}", check=False, timeout_s=20)
        assert done.returncode == 78, done
        assert "bad.toml" in done.stderr
        assert fault in done.stderr, done.stderr
        assert "Traceback" not in done.stderr
        assert len(done.stderr) < 4000
    assert fleet.cli("switch", "bad").exit == 4


@pytest.mark.parametrize(
    "name",
    [
        *("a b.toml", "x;reboot.toml", "%n.toml", "-rf.toml", "A.toml", "é.toml", "a@b.toml"),
        *("$HOME.toml", "a\nb.toml", "..toml", "x\\x2dy.toml", f"{'n' * 49}.toml", "'.toml"),
    ],
)
def test_name_that_no_unit_may_have_is_refused(fleet: Fleet, name: str) -> None:
    """A file whose name would mean something to a shell, a path or systemd is no profile."""
    write(fleet, name, GOOD)
    done = fleet.box.run("appliance", "apply", check=False)
    if name.startswith("."):  # hidden files are no profiles
        assert done.returncode == 0
        return
    assert (done.returncode, "is no profile name" in done.stderr) == (78, True), done
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("make", ["mkdir", "mkfifo", "ln -s /dev/zero", "ln -s /nowhere"])
def test_what_is_no_file_is_refused(fleet: Fleet, make: str) -> None:
    """A directory, a pipe, a device or a dangling link is told, and never waited for."""
    fleet.box.run(f"{make} {PROFILES}/odd.toml")
    done = fleet.box.run("appliance", "apply", check=False, timeout_s=10)
    assert (done.returncode, "odd.toml" in done.stderr) == (78, True), done


def test_shared_port_is_refused(fleet: Fleet) -> None:
    """Two profiles that could run together and listen on one port: an error that names both."""
    for name in ("left", "right"):
        write(fleet, f"{name}.toml", GOOD.replace("gpus = []", "gpus = []\nshared = true"))
    done = fleet.box.run("appliance", "apply", check=False)
    assert done.returncode == 78
    assert "left.toml:2: port 9009 is also that of right.toml" in done.stderr
    assert "right.toml:2: port 9009 is also that of left.toml" in done.stderr


def test_port_of_a_running_model_is_refused(fleet: Fleet) -> None:
    """The profile that already serves keeps its unit and its process."""
    write(fleet, "new.toml", GOOD.replace("9009", "9001").replace("[]", "[]\nshared = true", 1))
    done = fleet.box.run("appliance", "apply", check=False)
    assert done.returncode == 78
    assert "new.toml:2: port 9001 is also that of a.toml" in done.stderr


@pytest.mark.parametrize(
    ("top", "sentence"),
    [
        ('model = "/models/gone.gguf"', "model file missing: /models/gone.gguf"),
        ("", "engine not found: /opt/none/bin/server"),
    ],
    ids=["model", "engine"],
)
def test_what_cannot_start_stops_nothing(fleet: Fleet, top: str, sentence: str) -> None:
    """A missing model file or engine is refused before the running model is touched."""
    pid, gone = fleet.main_pid("a"), GOOD.replace("/usr/bin/true", "/opt/none/bin/server")
    text = GOOD.replace("gpus", f"{top}\ngpus") if top else gone
    write(fleet, "gone.toml", text)
    fleet.apply()
    for words in (("switch", "gone", "--dry-run"), ("switch", "gone")):
        answer = fleet.cli(*words)
        assert answer.exit == 1
        assert sentence in json.dumps(answer.events), answer
    assert fleet.main_pid("a") == pid
    (fleet.box.root / f"{PROFILES}/gone.toml".lstrip("/")).unlink()
    fleet.apply()


def test_bad_profile_takes_no_other_down(shared: Fleet) -> None:
    """Beside a broken file a new one is applied, and what was applied from it before goes on."""
    pid, unit = shared.main_pid("a"), "cat /etc/systemd/system/appliance-backend-a.service"
    before = shared.box.run(unit).stdout
    shared.profile("c", 9003)
    text = (shared.box.root / f"{PROFILES}/a.toml".lstrip("/")).read_text()
    write(shared, "a.toml", text.replace("port =", "prot ="))
    write(shared, "zzz.toml", b"\0")
    done = shared.box.run("appliance", "apply", check=False)
    assert done.returncode == 78
    assert 'a.toml:3: unknown key "prot"; did you mean "port"?' in done.stderr
    assert shared.main_pid("a") == pid
    # The new rival is named in it, from what was applied last.
    assert set(shared.box.run(unit).stdout.splitlines()) - set(before.splitlines()) <= {
        line for line in shared.box.run(unit).stdout.splitlines() if "appliance-backend-c" in line
    } | {line for line in shared.box.run(unit).stdout.splitlines() if line.startswith("#")}
    for name in ("c", "b", "a"):
        shared.switch(name)
    (shared.box.root / f"{PROFILES}/zzz.toml".lstrip("/")).unlink()
    (shared.box.root / f"{PROFILES}/c.toml".lstrip("/")).unlink()
    shared.pair()


# --- the command line --------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    ["../../../etc/shadow", "a.service", "a;reboot", "*", "%n", "a b", "", "a\n", "n" * 5000],
    ids=lambda name: repr(name[:20]),
)
def test_name_is_looked_up_and_nothing_else(fleet: Fleet, name: str) -> None:
    """No path, pattern or unit is made of it: there is no such profile (4), on one short line."""
    for verb in ("switch", "start", "stop", "show", "logs", "edit", "wait", "status"):
        done = fleet.box.run("appliance", verb, name, check=False, env={"EDITOR": "true"})
        assert done.returncode == 4, done
        assert "no profile" in done.stderr
        assert len(done.stderr) < 300
        assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    "words",
    [
        *("swich a", "switch", "switch a --timeout soon", "mark a alive"),
        *("hold --for -1s", "logs -n x", "apply --adopt-changes --discard", "switch --nope a"),
        *("profile", "config frobnicate", "switch a --drain 5s --now"),
    ],
)
def test_wrong_use(fleet: Fleet, words: str) -> None:
    """A wrong command line is one line with a way on, and status 2."""
    done = fleet.box.run(f"appliance {words}", check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert "--help" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_apply_without_root_leaves_a_waiting_change(fleet: Fleet) -> None:
    """With something to do, too, it is refused before anything is written."""
    fleet.profile("c", 9003)
    for user in (OPERATOR, STRANGER):
        assert fleet.box.run("appliance", "apply", user=user, check=False).returncode == 77


def test_bad_settings(fleet: Fleet) -> None:
    """A wrong settings file is status 78 with its line, and the model runs on."""
    path = "/etc/appliance/appliance.toml"
    try:
        for text in ("look_evry_s = 1\n", 'gateway.port = "x"\n', "= 1\n"):
            fleet.box.write(path, text)
            for words in ("config validate", "apply"):
                done = fleet.box.run(f"appliance {words}", check=False)
                assert done.returncode == 78, done
                assert "appliance.toml" in done.stderr
                assert "Traceback" not in done.stderr
    finally:
        fleet.box.run(f"rm -f {path}")


# --- two at once -------------------------------------------------------------------------


def at_once(*calls: tuple[Fleet, tuple[str, ...], str | None]) -> list[Answer]:
    """Run several commands at the same moment."""
    answers: list[Answer] = []
    threads = [
        threading.Thread(target=lambda f=f, w=w, u=u: answers.append(f.cli(*w, user=u)))
        for f, w, u in calls
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return answers


def test_two_operators_with_two_wishes(shared: Fleet) -> None:
    """One gets its model, the other is told about it (75); exactly one serves and is committed."""
    shared.profile("c", 9003, "--delay", "0.5")
    shared.profile("d", 9004, "--delay", "0.5")
    shared.apply()
    for _ in range(3):
        answers = at_once((shared, ("switch", "c"), OPERATOR), (shared, ("switch", "d"), None))
        assert sorted(answer.exit for answer in answers) == [0, 75]
        (done,) = (answer for answer in answers if answer.exit == 0)
        (busy,) = (answer for answer in answers if answer.exit == 75)
        assert shared.active() == shared.committed() == list(done.result["target"])
        pattern = r"^switch [cd] by \S+ is running \(.*\): appliance wait, or appliance cancel$"
        assert re.match(pattern, busy.result["message"]), busy
        shared.switch("a")
    shared.box.run(f"rm {PROFILES}/c.toml {PROFILES}/d.toml; appliance apply")


def test_two_applies_at_once(fleet: Fleet) -> None:
    """Neither sees half of the other's work: each is done, or told to come again (75)."""
    answers = at_once(*[(fleet, ("apply",), None)] * 3)
    assert {answer.exit for answer in answers} <= {0, 75}
    assert 0 in {answer.exit for answer in answers}


# --- the control socket ------------------------------------------------------------------


def request(verb: str, args: object = None, **others: object) -> bytes:
    """One well-formed line."""
    document = {"protocol": {"min": 1, "max": 1}, "version": "0", "verb": verb, "args": args or {}}
    return json.dumps({**document, **others}).encode() + b"\n"


def connect(fleet: Fleet) -> socket.socket:
    """A connection to the control socket."""
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(15)
    connection.connect(f"/proc/{fleet.box.leader}/root/{CONTROL}")
    return connection


def converse(fleet: Fleet, line: bytes) -> dict[str, object]:
    """Return the supervisor's last answer to a line; empty: it closed the connection."""
    with connect(fleet) as connection:
        try:
            connection.sendall(line)
            connection.shutdown(socket.SHUT_WR)
        except (BrokenPipeError, ConnectionResetError):
            pass
        answer = b""
        try:
            while chunk := connection.recv(65536):
                answer += chunk
        except ConnectionResetError:
            pass
    closing: dict[str, object] = json.loads(answer.splitlines()[-1]) if answer else {}
    return closing


@pytest.mark.parametrize(
    ("line", "status", "words"),
    [
        (b"\n", 2, "not JSON"),
        (b"", 2, "not JSON"),
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", 2, "not JSON"),
        (b"\xff\xfe\x00\x01\n", 2, "not JSON"),
        (bytes(range(256)) * 100 + b"\n", 2, "not JSON"),
        (b"[" * 50_000 + b"\n", 2, "nested too deeply"),
        (b"[]\n", 2, "not a JSON object"),
        (b"{}\n", 2, "protocol versions"),
        (b'{"protocol": {"min": 1, "max": Infinity}, "verb": "status"}\n', 2, "not JSON"),
        (b'{"protocol": {"min": 1, "max": NaN}, "verb": "status"}\n', 2, "not JSON"),
        (b'{"protocol": [1, 1], "verb": "status"}\n', 2, "protocol versions"),
        (request("status", protocol={"min": 99, "max": 99}), 2, "they share no protocol: sudo"),
        (request("status", protocol={"min": 0, "max": 0}), 2, "they share no protocol: sudo"),
        (request("swich"), 2, 'did you mean "switch"?'),
        (request("status", ["x"]), 2, "args is not an object"),
        (request("switch"), 2, "name is missing"),
        (request("switch", {"name": 3}), 2, "name: expected"),
        (request("switch", {"name": "../../etc"}), 4, "no profile"),
        (request("switch", {"name": "b\n"}), 4, "no profile"),
        (request("switch", {"name": "b\u0000\ud800"}), 4, "no profile"),
        (request("switch", {"name": "b" * 50_000}), 4, "no profile"),
        (request("switch", {"name": "b", "drain_s": -1}), 2, "drain_s: expected"),
        (request("switch", {"name": "b", "drain_s": True}), 2, "drain_s: expected"),
        (request("switch", {"name": "b", "drain_s": float("nan")}), 2, "not JSON"),
        (request("hold", {"for_s": 1e300}), 2, "for_s: expected"),
        (request("run", {"gpus": "all"}), 2, "command is missing"),
        (request("run", {"command": "sh", "gpus": [-1]}), 2, "gpus[0]: expected"),
        (request("run", {"command": "sh", "gpus": ["0"]}), 2, "gpus[0]: expected"),
        (request("stop", {"names": "a"}), 2, "names: expected"),
        (request("stop", {"names": [1]}), 2, "names[0]: expected"),
        (request("mark", {"name": "b", "mark": "dead"}), 2, "mark: invalid"),
        (request("switch", {"name": "b", "x": "y" * (2 << 20)}), 2, "too long"),
        (b"x" * (3 << 20), 2, "too long"),
    ],
    ids=range(33),
)
def test_nonsense_on_the_control_socket(fleet: Fleet, line: bytes, status: int, words: str) -> None:
    """Each wrong line gets one closing error; the supervisor neither dies nor logs a traceback."""
    closing = converse(fleet, line)
    assert (closing.get("event"), closing.get("exit")) == ("error", status), closing
    assert words in str(closing["message"])
    assert len(str(closing["message"])) < 400
    journal = fleet.box.journal("-u", "appliance-supervisor.service")
    assert "Traceback" not in journal, journal[-4000:]


def test_crowd_is_no_hindrance(fleet: Fleet) -> None:
    """Clients that say nothing, do not read, or leave at once neither stop others nor the daemon."""
    for _ in range(5):
        crowd = [connect(fleet) for _ in range(100)]
        for connection in crowd[50:]:
            connection.sendall(request("status"))
        assert fleet.cli("cancel").exit == 0
        assert fleet.status()["supervisor"]["state"] == "up"
        for connection in crowd:
            connection.close()
    journal = fleet.box.journal("-u", "appliance-supervisor.service")
    assert "Traceback" not in journal, journal[-4000:]
