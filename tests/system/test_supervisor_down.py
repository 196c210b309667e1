"""The supervisor is gone: what every verb still does, and that models and operations outlive it."""

import json
import re
import signal
from collections.abc import Iterator

import pytest

from appliance.cli.grammar import VERBS
from tests.fakes.command_lines import REQUESTS
from tests.system.chat import ask_streaming, pieces
from tests.system.fleet import PROFILES, Fleet
from tests.system.rig import Box, Image, Stream
from tests.system.rig.appliance import CHECKOUT

SUPERVISOR = "appliance-supervisor.service"
SOCKET = "appliance-supervisor.socket"
NOT_RUNNING = r"^supervisor not running: sudo systemctl start appliance-supervisor"
BY_HAND = NOT_RUNNING + r" \(or, without it: sudo systemctl {}\)$"
UNKNOWN = r'^no profile "genisis"'

CASES: dict[str, list[tuple[str, int, str]]] = {
    "status": [
        ("", 1, rf"(?s)● a .* serving .*{NOT_RUNNING[1:]}"),
        ("--json", 1, r'"verdict": \{\s*"state": "degraded"'),
        ("a", 0, "● a .* serving"),
        ("b", 3, "○ b .* stopped"),
        ("genisis", 4, UNKNOWN),
    ],
    "list": [
        ("", 0, r"(?s)● a .* serving .* committed .*○ b .* stopped"),
        ("--json", 0, r'"state": "serving"'),
        ("--all", 0, "marks are not known while the supervisor does not answer"),
    ],
    "show": [
        ("a", 0, r"(?s)● a .* serving .*claims +cpu"),
        ("a --unit", 0, "(?m)^ExecStart=.*--name a "),
        ("a --config", 0, '(?m)^engine = "command"'),
        ("genisis", 4, UNKNOWN),
    ],
    "logs": [
        ("a", 0, "serving on 127.0.0.1:9001"),
        ("", 0, "a is serving"),
        ("genisis", 4, UNKNOWN),
    ],
    "history": [("a", 0, r"\ba\b"), ("genisis", 4, UNKNOWN)],
    "alerts": [("", 0, "^")],
    "target": [("ls", 0, "^")],
    "window": [("ls", 0, "^")],
    "baseline": [
        ("show a", 0, "(?m)^a$"),
        ("reset a", 2, "^baseline reset asks on a terminal"),
        ("show genisis", 4, UNKNOWN),
    ],
    "operations": [("", 69, f"{NOT_RUNNING}$")],
    "probe": [("a", 69, "^the supervisor does not answer: "), ("genisis", 4, UNKNOWN)],
    "events": [("", 0, "^"), ("genisis", 4, UNKNOWN)],
    "bench": [("genisis", 4, UNKNOWN)],
    "wait": [
        ("", 0, "^a is serving$"),
        ("a --for serving", 0, "^a is serving$"),
        ("b --for idle", 0, "^b is stopped$"),
        ("b --timeout 0.3s", 124, "^b is stopped after 0.3 s: appliance status$"),
        ("genisis", 4, UNKNOWN),
    ],
    "switch": [
        ("b", 69, BY_HAND.format("start appliance-backend-b")),
        ("b --dry-run", 69, NOT_RUNNING),
        ("b --json", 69, r'"event": "error", "exit": 69, "message": "supervisor not running'),
        ("genisis", 4, UNKNOWN),
    ],
    "start": [("b", 69, BY_HAND.format("start appliance-backend-b"))],
    "stop": [
        ("a", 69, BY_HAND.format("stop appliance-backend-a")),
        ("a genisis", 4, UNKNOWN),
    ],
    "restart": [("a", 69, BY_HAND.format("restart appliance-backend-a"))],
    "hold": [("", 69, BY_HAND.format(r"start appliance-hold\.service"))],
    "run": [("-- true", 69, NOT_RUNNING)],
    "mark": [("genisis live", 4, UNKNOWN)],
    "verify": [("a", 69, f"{NOT_RUNNING}$"), ("genisis", 4, UNKNOWN)],
    "key": [
        ("ls", 69, f"{NOT_RUNNING}$"),
        ("add phone", 69, f"{NOT_RUNNING}$"),
        ("rm", 2, "^key rm wants a NAME: appliance key --help$"),
    ],
    "token": [
        ("ls", 69, f"{NOT_RUNNING}$"),
        ("add phone", 69, f"{NOT_RUNNING}$"),
        ("rm", 2, "^token rm wants a NAME: appliance token --help$"),
    ],
    "top": [("", 2, "^top needs a terminal: appliance status --watch$")],
    "apply": [("", 0, "^2 profiles are applied; nothing to change$"), ("--dry-run", 0, "applied")],
    "edit": [("a", 0, "^nothing was changed$"), ("genisis", 4, UNKNOWN)],
    "profile": [("validate", 0, "^a.toml: ok\nb.toml: ok$"), ("render b", 0, "(?m)^ExecStart=")],
    "config": [
        ("show", 0, "(?m)^control_socket ="),
        ("validate", 0, ": ok"),
        ("path", 0, ".toml$"),
    ],
    "version": [("", 0, r"^appliance \d.*\nsupervisor does not answer$")],
    "completion": [("bash", 0, "complete"), ("fish", 0, "complete")],
}
"""Cases by verb: arguments, exit status, and text on stdout or stderr."""
LINES = [
    *(
        (f"{verb} {words}", status, says)
        for verb, cases in CASES.items()
        for words, status, says in cases
    ),
    *((line, 69, NOT_RUNNING) for line, _, _ in REQUESTS),
]


@pytest.fixture(scope="module")
def headless(image: Image) -> Iterator[Fleet]:
    """A box where a serves and neither the supervisor nor its socket is up."""
    with Box(image) as box:
        fleet = Fleet(box)
        fleet.pair()
        fleet.switch("a")
        box.run("systemctl", "stop", SOCKET, SUPERVISOR)
        yield fleet


@pytest.fixture(scope="module")
def slow(image: Image) -> Iterator[Fleet]:
    """A box whose profile b serves after 1 s and thinks for half of one."""
    with Box(image, disk="/var/lib/appliance") as box:
        fleet = Fleet(box)
        fleet.profile("a", 9001, "--ignore-term", tables='[deadlines]\nstop = "1s"\n')
        fleet.profile("b", 9002, "--delay", "1", "--think", "0.5")
        fleet.apply()
        fleet.keep()
        yield fleet


@pytest.fixture
def fleet(slow: Fleet) -> Fleet:
    """Shared box, a serving."""
    slow.restore("a")
    return slow


def supervisor_pid(box: Box) -> int:
    """The supervisor's process; 0: it does not run."""
    return int(box.run("systemctl", "show", "-P", "MainPID", SUPERVISOR).stdout)


def kill_supervisor(box: Box) -> int:
    """Kill it with -9; the process that died."""
    pid = supervisor_pid(box)
    box.run("systemctl", "kill", "--signal=KILL", SUPERVISOR)
    return pid


def wait_for_another_than(box: Box, pid: int) -> None:
    """Wait until systemd has started the supervisor again."""
    box.wait_for(f"p=$(systemctl show -P MainPID {SUPERVISOR}); test $p -ne 0 -a $p -ne {pid}")
    box.wait_for(f"systemctl is-active {SUPERVISOR}")


# --- every verb --------------------------------------------------------------------------


def test_every_verb_has_a_case() -> None:
    """A new verb must say what it does without the supervisor."""
    assert {verb.name for verb in VERBS} == {line.split()[0] for line, _, _ in LINES}


@pytest.mark.parametrize(("line", "status", "says"), LINES, ids=lambda value: str(value)[:24])
def test_verb_without_supervisor(headless: Fleet, line: str, status: int, says: str) -> None:
    """A verb does what it can, or says what to do; model and supervisor stay as they are."""
    pid = headless.main_pid("a")
    command = f"EDITOR=true appliance {line}"
    done = headless.box.run(command, check=False, timeout_s=20)
    said = (done.stdout + done.stderr).strip()
    assert done.returncode == status, said
    assert re.search(says, said), said
    assert "Traceback" not in said
    assert headless.main_pid("a") == pid
    assert supervisor_pid(headless.box) == 0


def test_aliases_do_what_their_verb_does(headless: Fleet) -> None:
    """`ls` is `list`, and so for every other alias."""
    for verb in VERBS:
        for alias in verb.aliases:
            texts = [headless.box.run(f"appliance {word}").stdout for word in (verb.name, alias)]
            assert texts[0] == texts[1]


def test_truth_comes_from_systemd(headless: Fleet) -> None:
    """Starts and stops by hand meanwhile are shown; the commitment stays what it was."""
    headless.box.run("systemctl start appliance-backend-b")
    rows = {row["name"]: row for row in headless.status()["profiles"]}
    assert {name: row["state"] for name, row in rows.items()} == {"a": "stopped", "b": "serving"}
    assert rows["b"]["main_pid"] == headless.main_pid("b")
    assert [name for name, row in rows.items() if row["committed"]] == ["a"]
    assert headless.box.run("appliance wait b --for serving").stdout == "b is serving\n"
    assert "9002" in headless.box.run("appliance logs b -n 1").stdout
    headless.box.run("systemctl start appliance-backend-a")
    assert headless.active() == ["a"]


def test_crashed_model_comes_back_without_supervisor(headless: Fleet) -> None:
    """An engine that was killed is restarted by systemd, and its own poller declares it ready."""
    pid = headless.main_pid("a")
    headless.box.run("systemctl kill --signal=KILL appliance-backend-a")
    headless.box.wait_for(
        f"p=$(systemctl show -P MainPID appliance-backend-a); test $p -ne 0 -a $p -ne {pid}",
        timeout_s=30,
    )
    headless.wait_serving("a", timeout_s=30)


def test_next_command_starts_a_stopped_supervisor(shared_fleet: Fleet) -> None:
    """The socket belongs to systemd: with only the service stopped, each command gets an answer."""
    fleet, box = shared_fleet, shared_fleet.box
    box.run("systemctl", "stop", SUPERVISOR)
    assert supervisor_pid(box) == 0
    fleet.switch("b")
    assert supervisor_pid(box) != 0
    assert fleet.status()["supervisor"]["state"] == "up"


# --- a model's work goes on --------------------------------------------------------------


@pytest.mark.parametrize("end", ["systemctl kill --signal=KILL", "systemctl restart"])
def test_stream_outlives_the_supervisor(shared_fleet: Fleet, end: str) -> None:
    """Killed or restarted in the middle of an answer: the answer is whole, the engine the same."""
    fleet, box = shared_fleet, shared_fleet.box
    pid, old = fleet.main_pid("a"), supervisor_pid(box)
    with ask_streaming(box, 9001, "Count.") as stream:
        story = pieces(stream)
        told = [next(story)]
        box.run(f"{end} {SUPERVISOR}")
        wait_for_another_than(box, old)
        told += story
        assert stream.wait() == 0
    words = [piece["choices"][0]["delta"].get("content") for piece in told]
    assert words == ["hello from 9001", *(f" {number}" for number in range(1, 60)), None]
    assert fleet.main_pid("a") == pid
    assert fleet.active() == ["a"]


@pytest.mark.timeout(600)
def test_real_answer_outlives_the_supervisor(shared_fleet: Fleet) -> None:
    """llama.cpp finishes its answer, to the last token, through a kill -9 and a restart."""
    fleet, box = shared_fleet, shared_fleet.box
    text = (CHECKOUT / "profiles/smol.toml").read_text()
    # Two threads that wait for each other crawl where another test has one of two cores.
    box.write(f"{PROFILES}/smol.toml", text.replace("threads = 2", "threads = 1"))
    fleet.apply()
    fleet.switch("smol")
    pid = fleet.main_pid("smol")
    for end in ("systemctl kill --signal=KILL", "systemctl restart"):
        old = supervisor_pid(box)
        asked = ask_streaming(
            box, 8031, "Tell me a long story.", max_tokens=300, ignore_eos=True, temperature=0
        )
        with asked as stream:
            story = pieces(stream)
            first = next(story)
            box.run(f"{end} {SUPERVISOR}")
            wait_for_another_than(box, old)
            parts = [first, *story]
            assert stream.wait() == 0
        assert parts[-1]["choices"][0]["finish_reason"] == "length"
        assert parts[-1]["timings"]["predicted_n"] == 300
        assert fleet.main_pid("smol") == pid
    assert supervisor_pid(box) != 0


# --- an operation goes on ----------------------------------------------------------------


def phase(event: dict[str, object]) -> str:
    """The phase that an event begins; of any other event its kind."""
    if event["event"] == "phase":
        return f"{'roll-back ' if event['rolling_back'] else ''}{event['phase']}"
    return str(event["event"])


def switch_until(fleet: Fleet, moment: str, *options: str) -> Stream:
    """A running `switch b` that has come to a moment; the rest of its story is still to be read."""
    stream = fleet.box.stream("appliance", "switch", "b", "--json", *options)
    for line in stream.lines():
        event = json.loads(line)
        if phase(event) == moment:
            return stream
    stream.close()
    raise AssertionError(f"never came to {moment}")


def settled(fleet: Fleet) -> list[str]:
    """Return what serves once no operation runs; it must be what a boot would bring back."""
    fleet.box.wait_for("appliance wait --for idle --timeout 20s", timeout_s=30)
    document = fleet.status()
    assert document["operation"] is None
    assert fleet.active() == fleet.committed() == document["committed"]
    return fleet.active()


@pytest.mark.parametrize(
    "moment",
    ["accepted", "preflight", "stop", "release", "load", "warm-up", "verify", "commit"],
)
def test_switch_outlives_the_supervisor(fleet: Fleet, moment: str) -> None:
    """Killed in any phase, it goes on with the switch, and the waiting command sees the end."""
    with switch_until(fleet, moment) as stream:
        old = kill_supervisor(fleet.box)
        *_, last = stream.lines()
        assert stream.wait(30) == 0, stream.errors()
    assert json.loads(last)["outcome"] == "done"
    assert settled(fleet) == ["b"]
    assert fleet.main_pid("a") == 0
    assert supervisor_pid(fleet.box) not in {0, old}
    assert fleet.status()["last_operation"]["outcome"] == "done"


def test_roll_back_outlives_the_supervisor(fleet: Fleet) -> None:
    """Killed while it brings the previous model back, it still brings it back, and exits 10."""
    fleet.profile("b", 9002, "--die")
    fleet.profile("a", 9001, "--delay", "1")
    fleet.box.run("systemctl kill --signal=KILL appliance-backend-a; appliance apply")
    fleet.switch("a")
    with switch_until(fleet, "roll-back load") as stream:
        kill_supervisor(fleet.box)
        assert stream.wait(30) == 10, stream.errors()
    assert settled(fleet) == ["a"]
    assert fleet.status()["last_operation"]["outcome"] == "rolled-back"


@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGINT, 130), (signal.SIGKILL, -9), (signal.SIGTERM, -15)]
)
def test_switch_outlives_its_command(fleet: Fleet, number: signal.Signals, status: int) -> None:
    """Ctrl-C detaches and says so; however the command ends, the switch goes on."""
    with switch_until(fleet, "load") as stream:
        stream.signal(number)
        assert stream.wait() == status
        said = stream.errors()
    if number is signal.SIGINT:
        assert (
            said
            == "detached; switch to b continues: appliance wait follows it, appliance cancel ends it\n"
        )
    assert fleet.status()["operation"]["target"] == ["b"]
    assert fleet.cli("wait").exit == 0
    assert settled(fleet) == ["b"]


def test_time_out_ends_the_waiting_only(fleet: Fleet) -> None:
    """`--timeout` ends the command with 124; the switch goes on."""
    assert fleet.cli("switch", "b", "--timeout", "0.5s").exit == 124
    assert fleet.cli("wait").exit == 0
    assert settled(fleet) == ["b"]
