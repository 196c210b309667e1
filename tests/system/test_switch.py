"""The switch on a real systemd: what it ends with, whatever happens on the way."""

import json
import os
import re
import select
import shlex
import threading
import time

import pytest

from tests.fakes.screen_emulator import shown_lines
from tests.system.fleet import OPERATOR, PROFILES, Fleet
from tests.system.rig.stream import Stream


@pytest.fixture
def fleet(shared_fleet: Fleet) -> Fleet:
    """A box with the profiles a and b, a serving."""
    return shared_fleet


def test_switch_serves_and_commits(fleet: Fleet) -> None:
    """After a switch the new model answers, the old one is gone, and the file says so."""
    answer = fleet.switch("b")
    assert answer.result["message"] == "b is serving on :9002"
    assert answer.result["committed"] == fleet.committed() == ["b"]
    assert fleet.active() == ["b"]
    phases = [e["phase"] for e in answer.events if e["event"] == "phase" and e["state"] == "done"]
    assert phases[0] == "preflight"
    assert phases[-3:] == ["warm-up", "verify", "commit"]
    assert "hello from 9002" in fleet.box.run(ask(9002)).stdout


def ask(port: int) -> str:
    """A shell line that asks the model on a port one question."""
    return (
        f"curl -sf -m 60 http://127.0.0.1:{port}/v1/chat/completions"
        ' -H "Content-Type: application/json"'
        """ -d '{"messages": [{"role": "user", "content": "Say hello."}], "max_tokens": 16}'"""
    )


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (("--die",), "the engine exited with status 3"),
        (("--mute",), "answered 500"),
        (("--delay", "60"), "no progress"),
    ],
    ids=["dies", "mute", "hangs"],
)
def test_failed_switch_restores_the_previous(
    fleet: Fleet, options: tuple[str, ...], reason: str
) -> None:
    """An engine that dies, answers nonsense or hangs costs the old model a pause."""
    fleet.profile("bad", 9003, *options, tables='[deadlines]\nno_progress = "3s"\n')
    fleet.apply()
    answer = fleet.cli("switch", "bad")
    assert answer.exit == 10, answer
    assert reason in answer.result["message"]
    assert answer.result["restored"] == ["a"]
    assert fleet.active() == ["a"]
    assert fleet.committed() == ["a"]


def test_a_start_waits_for_its_port(fleet: Fleet) -> None:
    """An engine that binds without SO_REUSEADDR is started when the kernel has let its port go."""
    fleet.profile("plain", 9004, "--no-reuse")
    fleet.apply()
    fleet.switch("plain")
    client = "import socket; s = socket.create_connection(('127.0.0.1', 9004)); s.recv(1)"
    fleet.box.run(f"systemd-run -q /usr/bin/python3 -c {shlex.quote(client)}")
    fleet.box.wait_for("grep -q ':232C .* 01 ' /proc/net/tcp")
    fleet.box.run("systemd-run -q appliance restart plain")
    fleet.box.wait_for("appliance status plain | grep 'port 9004: free again in'")
    fleet.box.run(
        "ss -K -tn state time-wait sport = :9004 >/dev/null", check=False
    )  # else it takes a minute
    ended = fleet.cli("wait", "plain", timeout_s=80.0)
    assert ended.exit == 0, ended
    assert fleet.active() == ["plain"]
    assert fleet.show("plain", "NRestarts") == "0"


def test_a_killed_engine_is_stopped_not_failed(fleet: Fleet) -> None:
    """An engine that ignores its stop is killed at the deadline, and nobody is told that it failed."""
    fleet.profile("orm", 9005, "--ignore-term", top='gpus = []\ndeadlines = { stop = "1s" }')
    fleet.apply()
    fleet.switch("orm")
    fleet.switch("a")
    (orm,) = [row for row in fleet.status()["profiles"] if row["name"] == "orm"]
    assert (orm["state"], orm["note"]) == ("stopped", "had to be killed after 1 s")
    models = json.loads(fleet.box.run("curl -sf http://127.0.0.1:8010/v1/models").stdout)["data"]
    assert [m["status"]["value"] for m in models if m["id"] == "orm"] == ["unloaded"]


def test_failure_shows_the_backends_last_words(fleet: Fleet) -> None:
    """The last lines that the failed engine logged come with the failure."""
    fleet.profile("bad", 9003, "--die")
    fleet.apply()
    assert "weights: corrupt" in fleet.cli("switch", "bad").result["log"]


CHATTY = """
for n in $(seq 400); do echo "INFO: layer $n"; done
printf 'Traceback (most recent call last):\\n  File "x.py", line 1\\nValueError: no cache\\n'
for n in $(seq 20); do echo "INFO: closing $n"; done
printf '\\033[32mINFO: \\033]0;x\\007caf\\303\\251\\033[0m 10%%\\r\\033[32mINFO: last\\033[0m 20%%\\n'
exit 3
"""


def test_cause_of_a_failed_start_is_found_among_many_lines(fleet: Fleet) -> None:
    """A failed start is told by the line that names the error; `logs -n` counts from the end, without escapes."""
    program = "/usr/local/lib/test-engine/chatty.sh"
    fleet.box.write(program, CHATTY)
    argv = json.dumps(["/bin/sh", program, "{port}"])
    fleet.box.write(
        f"{PROFILES}/chatty.toml",
        f'engine = "command"\nport = 9003\ngpus = []\n[command]\nargv = {argv}\nhealth = "/health"\n',
    )
    fleet.apply()
    answer = fleet.cli("switch", "chatty")
    assert answer.exit == 10, answer
    assert answer.result["log"] == ["ValueError: no cache"]
    shown = fleet.box.run("appliance logs chatty --since 1h -n 30").stdout
    engine = [line.partition("]: ")[2] for line in shown.splitlines() if "INFO: " in line]
    # Coloured and redrawn: journalctl alone prints "[nnB blob data]" for it.
    assert engine[-2:] == ["INFO: closing 20", "INFO: last 20%"]
    assert "INFO: layer 1" not in engine


def test_no_rollback_leaves_nothing_serving(fleet: Fleet) -> None:
    """--no-rollback ends with nothing serving and says so by its exit status."""
    fleet.profile("bad", 9003, "--die")
    fleet.apply()
    assert fleet.cli("switch", "bad", "--no-rollback").exit == 11
    assert fleet.active() == []
    assert fleet.committed() == ["a"]


def test_loading_engine_is_waited_for(fleet: Fleet) -> None:
    """An engine that loads for longer than its no-progress deadline, busily, is not cut."""
    fleet.box.write(
        "/usr/local/lib/test-engine/busy.py",
        "import runpy, sys, time\n"
        "end = time.monotonic() + 6\n"
        "while time.monotonic() < end: pass\n"
        f"sys.argv = ['engine.py', '9003']\nrunpy.run_path('{'/usr/local/lib/test-engine/engine.py'}', run_name='__main__')\n",
    )
    fleet.profile("busy", 9003, tables='[deadlines]\nno_progress = "2s"\n')
    path = "/etc/appliance/profiles/busy.toml"
    text = (fleet.box.root / path.lstrip("/")).read_text()
    fleet.box.write(path, text.replace("engine.py", "busy.py"))
    fleet.apply()
    assert fleet.switch("busy").result["phases_ms"]["load"] > 3000


def test_same_target_joins_and_another_is_busy(fleet: Fleet) -> None:
    """Two operators at once: one operation, or a clear word about the other's."""
    fleet.profile("slow", 9003, "--delay", "2")
    fleet.apply()
    first = threading.Thread(target=fleet.switch, args=("slow",))
    first.start()
    time.sleep(1.0)
    busy = fleet.cli("switch", "b")
    assert busy.exit == 75
    assert "switch slow by root is running (" in (busy.errors or str(busy.events))
    joined = fleet.switch("slow")
    first.join()
    assert [e["joined"] for e in joined.events if e["event"] == "accepted"] == [True]


def test_cancel_brings_the_previous_back(fleet: Fleet) -> None:
    """`cancel` turns a loading switch round."""
    fleet.profile("slow", 9003, "--delay", "30")
    fleet.apply()
    assert fleet.cli("switch", "slow", "--no-wait").exit == 0
    time.sleep(0.7)
    assert fleet.cli("cancel").exit == 0
    fleet.wait_serving("a")
    assert fleet.committed() == ["a"]


def test_refused_before_anything_is_stopped(fleet: Fleet) -> None:
    """A missing model file, a taken port and a retired profile never touch the old model."""
    pid = fleet.main_pid("a")
    fleet.profile("gone", 9003, top='gpus = []\nmodel = "/models/gone.gguf"')
    fleet.profile("taken", 9006)
    fleet.apply()
    listening = "/usr/bin/python3 -c 'import socket,time;s=socket.create_server((\"127.0.0.1\",9006));time.sleep(60)'"
    with fleet.box.stream("sh", "-c", listening):
        fleet.box.wait_for_listener(9006)
        taken = fleet.cli("switch", "taken")
    gone = fleet.cli("switch", "gone")
    fleet.box.run("appliance mark b retired")
    retired = fleet.cli("switch", "b")
    fleet.box.run("appliance mark b standby")
    assert [taken.exit, gone.exit, retired.exit] == [1, 1, 1]
    assert "port 9006 is in use by a process of user root" in taken.result["message"]
    assert "model file missing: /models/gone.gguf" in gone.result["message"]
    assert "b is retired: appliance mark b standby" in retired.result["message"]
    assert fleet.main_pid("a") == pid


def test_switch_without_a_drained_old_engine_still_ends(fleet: Fleet) -> None:
    """An engine that ignores SIGTERM is killed at its stop deadline, and the switch goes on."""
    fleet.profile("deaf", 9003, "--ignore-term", tables='[deadlines]\nstop = "1s"\n')
    fleet.apply()
    fleet.switch("deaf")
    answer = fleet.switch("b")
    assert answer.result["phases_ms"]["stop"] >= 900
    assert fleet.active() == ["b"]


def until_shown(stream: Stream, seen: bytearray, pattern: str) -> str:
    """Return the screen of a live command once it matches."""
    assert stream.process.stdout is not None
    output = stream.process.stdout.fileno()
    deadline = time.monotonic() + 30
    while not re.search(pattern, screen := "\n".join(shown_lines(seen.decode(errors="replace")))):
        assert time.monotonic() < deadline, screen
        if select.select([output], [], [], 0.1)[0]:
            seen += os.read(output, 65_536)
    return screen


def test_an_operator_switches_from_a_live_screen(fleet: Fleet) -> None:
    """`appliance top` shows the plan, then each phase of the switch as it comes, then what serves."""
    fleet.people()
    fleet.profile("slow", 9003, "--delay", "3")
    fleet.apply()
    command = 'script -qec "stty rows 40 columns 100; exec appliance top" /dev/null'
    with fleet.box.stream(command, user=OPERATOR, env={"TERM": "xterm"}) as stream:
        seen = bytearray()

        def press(keys: str) -> None:
            assert stream.process.stdin is not None
            stream.process.stdin.write(keys)
            stream.process.stdin.flush()

        until_shown(stream, seen, r">● a +serving")
        press("\x1b[B\x1b[B")
        until_shown(stream, seen, r">○ slow +stopped")
        press("s")
        plan = until_shown(stream, seen, "no obstacle|refused")
        assert re.search(r"switch to slow\?\n\nwould stop +a\nwould start +slow\n", plan)
        press("y")
        during = until_shown(stream, seen, r"◐ loading")
        assert re.search(r"switch to slow · \d", during)
        done = re.findall(r"✓ (\S+)", during)
        assert done[0] == "preflight"
        assert {"stopping", "starting"} <= set(done)
        after = until_shown(stream, seen, r">● slow +serving")
        assert re.search(r"○ a +stopped", after)
        until_shown(stream, seen, "last: switch to slow .* done")
        press("q")
        assert stream.process.stdout is not None
        assert f"{seen.decode()}{stream.process.stdout.read()}".endswith("\x1b[?1049l")
        assert stream.wait() == 0
    assert fleet.committed() == ["slow"]
