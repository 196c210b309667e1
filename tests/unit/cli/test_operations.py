"""Verbs that ask the supervisor to act, against a supervisor that speaks the protocol."""

import json
import os
import resource
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from appliance.model.errors import UnreachableError
from appliance.wire.client import Conversation, ask
from appliance.wire.control_requests import CONTROL, CancelRequest
from tests.fakes.cli_box import CliBox
from tests.fakes.command_lines import REQUESTS
from tests.fakes.control_server import FakeSupervisor, Hang, HangUp, Story
from tests.fakes.profiles import applied

ACCEPTED = {
    "event": "accepted",
    "operation": 12,
    "kind": "switch",
    "target": ["genesis"],
    "evicts": ["aeon"],
    "joined": False,
    "usual_ms": 48_000,
}
DONE = {
    "event": "result",
    "operation": 12,
    "exit": 0,
    "outcome": "done",
    "kind": "switch",
    "target": ["genesis"],
    "cause": None,
    "message": "genesis is serving on :8022",
    "ms": 47_900.0,
}
RESTORED = {
    "event": "result",
    "exit": 10,
    "operation": 12,
    "kind": "switch",
    "target": ["genesis"],
    "outcome": "rolled-back",
    "cause": "failure",
    "message": "genesis did not start: the engine exited with status 1",
    "log": ["loading shards", "CUDA out of memory"],
    "restored": ["aeon"],
    "ms": 9_000.0,
}
NOT_RUNNING = "supervisor not running: sudo systemctl start appliance-supervisor"


def phase(name: str, state: str, text: str = "", ms: float = 0.0, **more: object) -> Story:
    return [
        {
            "event": "phase",
            "phase": name,
            "state": state,
            "text": text,
            "ms": ms,
            "rolling_back": False,
            **more,
        }
    ]


SWITCH: Story = [
    ACCEPTED,
    *phase("preflight", "started"),
    *phase("preflight", "done", "needs 18.6 GiB, 24.0 GiB free", 200),
    *phase("hold", "skipped", "no gateway"),
    *phase("load", "started"),
    *phase("load", "progress", "loading 11.2 of 18.1 GiB", 900),
    *phase("load", "done", "ready", 19_700),
    DONE,
]


@pytest.fixture
def box(tmp_path: Path) -> CliBox:
    box = CliBox(tmp_path)
    box.install(applied("aeon", "gpu-all"), applied("genesis", "gpu-all", port=8022))
    return box


def test_a_switch_shows_a_line_a_phase_and_ends_with_one_sentence(box: CliBox) -> None:
    """Progress is on stderr, one line a phase; what came out of it is on stdout."""
    with FakeSupervisor(box.socket, {"switch": SWITCH}) as supervisor:
        ended = box.run("switch", "genesis")
    assert (ended.status, ended.out) == (0, "genesis is serving on :8022 in 47.9 s\n")
    heading, *phases = ended.err.splitlines()
    assert heading == "aeon → genesis   (usually 48.0 s; Ctrl-C detaches)"
    assert [line.split()[:2] for line in phases] == [
        ["✓", "preflight"],
        ["·", "holding"],
        ["✓", "loading"],
    ]
    assert phases[-1].split() == ["✓", "loading", "ready", "19.7", "s"]
    assert supervisor.requests == [
        {
            "protocol": {"min": 1, "max": 1},
            "version": "0.1.0",
            "verb": "switch",
            "args": {
                "name": "genesis",
                "dry_run": False,
                "rollback": True,
                "drain_s": None,
                "names": [],
            },
        }
    ]


@pytest.mark.parametrize(("command", "verb", "arguments"), REQUESTS)
def test_requests(box: CliBox, command: str, verb: str, arguments: Mapping[str, object]) -> None:
    """Each verb sends the arguments that the protocol names."""
    with FakeSupervisor(box.socket, {verb: [DONE]}) as supervisor:
        assert box.run(*command.split()).status == 0
    (request,) = supervisor.requests
    sent = request["args"]
    assert isinstance(sent, dict)
    assert request["verb"] == verb
    assert {key: sent[key] for key in arguments} == arguments


def test_a_refusal_is_told_once(box: CliBox) -> None:
    """Reasons of a refusal stand after the phases, a line each, and keep the columns whole."""
    reasons = "model file missing: /m (is /m mounted?)\nport 8022 is in use"
    refused = {**DONE, "exit": 1, "outcome": "refused", "message": reasons}
    story: Story = [ACCEPTED, *phase("preflight", "failed", reasons, 100), refused]
    with FakeSupervisor(box.socket, {"switch": story}):
        ended = box.run("switch", "genesis")
    assert ended.status == 1
    assert ended.err.splitlines()[1].split() == ["✗", "preflight", "refused", "0.1", "s"]
    assert ended.err.splitlines()[2:] == reasons.splitlines()


def test_columns_stand_under_each_other(box: CliBox) -> None:
    """The longest label leaves the columns beside it where they are."""
    story: Story = [
        ACCEPTED,
        *phase("release", "done", "free", 100, rolling_back=True),
        *phase("load", "done", "ready", 100),
        DONE,
    ]
    with FakeSupervisor(box.socket, {"switch": story}):
        _, longest, other = box.run("switch", "genesis").err.splitlines()
    assert longest.index("free") == other.index("ready")


def test_a_failed_switch_shows_the_log_and_what_was_restored(box: CliBox) -> None:
    """A failure says what failed, the backend's last lines, and what serves again."""
    story: Story = [ACCEPTED, *phase("load", "failed", "exited with status 1", 900), RESTORED]
    with FakeSupervisor(box.socket, {"switch": story}):
        ended = box.run("switch", "genesis")
    assert (ended.status, ended.out) == (10, "")
    assert ended.err.splitlines()[1].split()[:2] == ["✗", "loading"]
    assert ended.err.splitlines()[2:] == [
        "genesis did not start: the engine exited with status 1",
        "    loading shards",
        "    CUDA out of memory",
        "restored: aeon serves again",
    ]


def test_json_passes_events_on_as_they_came(box: CliBox) -> None:
    """With --json, stdout has the events after the greeting and nothing else."""
    with FakeSupervisor(box.socket, {"switch": [ACCEPTED, RESTORED]}):
        ended = box.run("switch", "genesis", "--json")
    assert ended.status == 10
    assert ended.out.splitlines() == [json.dumps(ACCEPTED), json.dumps(RESTORED)]
    assert ended.err == ""


@pytest.mark.parametrize(
    ("closing", "status"),
    [
        ({"event": "error", "exit": 4, "message": 'no profile "x"'}, 4),
        ({"event": "error", "exit": 75, "message": "switch to aeon is running"}, 75),
        ({"event": "error", "exit": 77, "message": "permission denied"}, 77),
        ({"event": "result", "exit": 11, "message": "nothing serves"}, 11),
        ({"event": "result", "exit": "strange", "message": "of a later version"}, 1),
    ],
)
def test_refusals(box: CliBox, closing: Mapping[str, object], status: int) -> None:
    """The supervisor's sentence and exit status are passed on."""
    with FakeSupervisor(box.socket, {"switch": [closing]}):
        ended = box.run("switch", "x")
    assert (ended.status, ended.err) == (status, f"{closing['message']}\n")


def test_dry_run_shows_plan_and_findings(box: CliBox) -> None:
    """A dry run says what would stop, start and be committed, and what speaks against it."""
    result = {
        "event": "result",
        "exit": 1,
        "message": "refused",
        "plan": {"stop": ["aeon"], "start": ["genesis"], "committed_after": ["genesis"]},
        "findings": [
            {"level": "ok", "text": "needs 18.6 GiB"},
            {"level": "refuse", "text": "model file missing: /models/x"},
        ],
    }
    with FakeSupervisor(box.socket, {"switch": [result]}) as supervisor:
        ended = box.run("switch", "genesis", "--dry-run")
    assert ended.status == 1
    assert ended.out.splitlines() == [
        "would stop   aeon",
        "would start  genesis",
        "after a boot genesis",
        " ✓ needs 18.6 GiB",
        " ✗ model file missing: /models/x",
        "refused",
    ]
    sent = supervisor.requests[0]["args"]
    assert isinstance(sent, dict)
    assert sent["dry_run"] is True


def test_no_wait_returns_when_the_operation_is_accepted(box: CliBox) -> None:
    """With --no-wait the command ends while the operation goes on."""
    with FakeSupervisor(box.socket, {"switch": [ACCEPTED, Hang()]}):
        ended = box.run("switch", "genesis", "--no-wait")
    assert (ended.status, ended.out) == (
        0,
        "switch to genesis has begun: appliance wait follows it\n",
    )


def test_timeout_ends_the_waiting_only(box: CliBox) -> None:
    """--timeout exits 124 and says that the operation continues."""
    with FakeSupervisor(box.socket, {"switch": [ACCEPTED, Hang()]}):
        ended = box.run("switch", "genesis", "--timeout", "300ms")
    assert ended.status == 124
    assert "switch to genesis continues after 0.3 s: appliance wait" in ended.err


def test_a_supervisor_that_goes_away_is_told(box: CliBox) -> None:
    """A connection that ends in mid-operation is not taken for success."""
    stories: dict[str, Story] = {"switch": [ACCEPTED, HangUp()], "attach": [HangUp()]}
    with FakeSupervisor(box.socket, stories):
        ended = box.run("switch", "genesis", "--timeout", "300ms")
    assert ended.status == 69
    assert "the supervisor went away during switch to genesis" in ended.err


def test_a_restarted_supervisor_is_followed_again(box: CliBox) -> None:
    """An operation that outlives its supervisor is followed to its end."""
    stories: dict[str, Story] = {"switch": [ACCEPTED, HangUp()], "attach": [ACCEPTED, RESTORED]}
    with FakeSupervisor(box.socket, stories):
        ended = box.run("switch", "genesis")
    assert ended.status == 10
    assert "restored: aeon serves again" in ended.err


def test_an_operation_that_ended_meanwhile(box: CliBox) -> None:
    """The record of a restarted supervisor ends the command as the event would have."""
    stories: dict[str, Story] = {"switch": [ACCEPTED, HangUp()], "attach": [RESTORED]}
    with FakeSupervisor(box.socket, stories) as supervisor:
        ended = box.run("switch", "genesis")
    assert ended.status == 10
    assert "restored: aeon serves again" in ended.err
    assert supervisor.requests[-1]["args"] == {"operation": 12}


@pytest.mark.parametrize(
    "event", [ACCEPTED | {"operation": 13}, {"event": "error", "exit": 2, "message": "not here"}]
)
def test_another_operation_is_not_followed_by_mistake(
    box: CliBox, event: Mapping[str, object]
) -> None:
    """A supervisor that knows nothing of the operation is one that has not come back."""
    stories: dict[str, Story] = {"switch": [ACCEPTED, HangUp()], "attach": [event, RESTORED]}
    with FakeSupervisor(box.socket, stories):
        ended = box.run("switch", "genesis", "--timeout", "300ms")
    assert ended.status == 69
    assert "the supervisor went away during switch to genesis" in ended.err


@pytest.mark.parametrize(
    ("command", "instead"),
    [
        ("switch genesis", "sudo systemctl start appliance-backend-genesis"),
        ("start genesis aeon", "start appliance-backend-genesis appliance-backend-aeon"),
        ("start", "sudo systemctl start appliance-backend-NAME"),
        ("stop genesis", "sudo systemctl stop appliance-backend-genesis"),
        ("restart genesis", "sudo systemctl restart appliance-backend-genesis"),
        ("hold", "sudo systemctl start appliance-hold.service"),
        ("cancel", ""),
        ("mark genesis live", ""),
    ],
)
def test_without_supervisor(box: CliBox, command: str, instead: str) -> None:
    """Without a supervisor each verb exits 69 and says what to do, and what works meanwhile."""
    ended = box.run(*command.split())
    assert ended.status == 69
    assert ended.err.startswith(NOT_RUNNING)
    assert instead in ended.err


def test_a_wrong_name_is_told_as_such_without_a_supervisor(box: CliBox) -> None:
    """A typing error is not blamed on the supervisor."""
    ended = box.run("switch", "genisis")
    assert (ended.status, ended.err) == (4, 'no profile "genisis". Did you mean "genesis"?\n')


def test_a_dead_socket_is_a_supervisor_that_does_not_run(box: CliBox) -> None:
    """A socket file that nobody listens on is not a supervisor."""
    with FakeSupervisor(box.socket, {}):
        pass
    ended = box.run("cancel")
    assert (ended.status, ended.err) == (69, f"{NOT_RUNNING}\n")


def test_a_supervisor_that_does_not_greet_is_given_up(box: CliBox) -> None:
    """The socket is systemd's and stays open for a dead supervisor: the wait for a greeting is bounded."""
    with (
        FakeSupervisor(box.socket, {}, greeting=None),
        pytest.raises(UnreachableError, match="supervisor does not answer within 0 s"),
    ):
        Conversation(CONTROL, str(box.socket), CancelRequest(), greeting_s=0.1)


@pytest.mark.parametrize(
    "greeting", [{"event": "hello", "filler": "x" * (3 << 20)}, {"event": "nonsense"}]
)
def test_noise_on_the_socket_is_no_supervisor(box: CliBox, greeting: Mapping[str, object]) -> None:
    """Any other answer on the socket ends the command with one sentence."""
    with (
        FakeSupervisor(box.socket, {"cancel": []}, greeting=greeting),
        pytest.raises(UnreachableError),
    ):
        ask(CONTROL, str(box.socket), CancelRequest())


def test_versions_without_a_common_protocol(box: CliBox) -> None:
    """The supervisor's own words say which side is old."""
    greeting = {"event": "error", "exit": 2, "message": "this command is newer: restart"}
    with FakeSupervisor(box.socket, {}, greeting=greeting):
        ended = box.run("cancel")
    assert (ended.status, ended.err) == (2, "this command is newer: restart\n")


def test_an_error_is_an_event_too(box: CliBox) -> None:
    """With --json an error is one JSON object on stdout as well."""
    ended = box.run("cancel", "--json")
    assert json.loads(ended.out) == {"event": "error", "exit": 69, "message": NOT_RUNNING}


@pytest.mark.skipif(os.geteuid() != 0, reason="needs a user that may not open the socket")
def test_a_socket_that_is_not_for_this_user(box: CliBox) -> None:
    """EACCES is answered with the group to join."""
    with FakeSupervisor(box.socket, {}):
        for folder in box.root.parents:
            assert folder.exists()
        box.socket.chmod(0o600)
        try:
            done = subprocess.run(
                box.command("cancel"),
                env={**box.environment},
                user=65_534,
                group=65_534,
                extra_groups=[],
                capture_output=True,
                text=True,
                cwd="/",
                check=False,
            )
        except PermissionError:
            pytest.skip("nobody cannot run this Python: shown by tests/system/test_privileges.py")
    if "No module named" in done.stderr or "Permission denied" in done.stderr:
        pytest.skip("nobody cannot read this checkout: shown by tests/system/test_privileges.py")
    assert done.returncode == 77
    assert "sudo usermod -aG appliance-operators $USER, then log in again" in done.stderr


def test_a_closed_pipe_is_no_traceback(box: CliBox) -> None:
    """A reader that goes away ends the command as it would end any other."""
    with FakeSupervisor(box.socket, {"switch": [DONE]}):
        read, write = os.pipe()
        os.close(read)
        with subprocess.Popen(
            box.command("switch", "genesis"),
            env={**box.environment},
            stdout=write,
            stderr=subprocess.PIPE,
        ) as process:
            os.close(write)
            _, errors = process.communicate(timeout=20)
    assert (process.returncode, errors) == (141, b"")


def test_the_environment_or_the_option_names_the_socket(box: CliBox, tmp_path: Path) -> None:
    """--socket is obeyed before and after the verb, and beats the environment."""
    other = tmp_path / "other.sock"
    with FakeSupervisor(other, {"cancel": [DONE]}):
        assert box.run("--socket", str(other), "cancel").status == 0
        assert box.run("cancel", "--socket", str(other)).status == 0


def test_a_command_is_quick(box: CliBox) -> None:
    """A switch of no work at all costs the command well under half a second of work."""
    with FakeSupervisor(box.socket, {"switch": [DONE]}):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        box.run("switch", "genesis")
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 0.5
