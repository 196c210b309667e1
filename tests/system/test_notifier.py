"""Notifier on a booted box: messages through its unit, its death and its leaving, and who sees a secret."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.fakes import ntfy_server
from tests.system.fleet import OPERATOR, Fleet
from tests.system.rig import Box, Image

NOTIFIER = "appliance-notifier.service"
USER = "appliance-notifier"
TOOLS = "/usr/local/lib/test-notifier"
PORT = 8099
AT = f"127.0.0.1:{PORT}"
SECRETS = {
    "user": "SeCrEtUsEr1",
    "password": "SeCrEtPaSs2",
    "topic": "SeCrEtToPiC3",
    "token": "tk_SeCrEt4",
    "path": "SeCrEtPaTh5",
    "hook password": "SeCrEtHoOk6",
    "click": "SeCrEtClIcK7",
    "heartbeat": "SeCrEtBeAt8",
}
MARK = f"(?i:{'|'.join(SECRETS.values())})"
"""Pattern of every secret, also in the case of a host."""
TARGETS = {
    "phone": f"ntfy://{SECRETS['user']}:{SECRETS['password']}@{AT}/{SECRETS['topic']}",
    "tablet": f"ntfy://{SECRETS['token']}@{AT}/tablet",
    "hook": f"json://u:{SECRETS['hook password']}@{AT}/hook/{SECRETS['path']}",
}
ASK = """
import json, socket, sys
with socket.socket(socket.AF_UNIX) as connection:
    connection.settimeout(30)
    connection.connect("/run/appliance/notify.sock")
    request = {"protocol": {"min": 1, "max": 1}, "verb": sys.argv[1], "args": json.loads(sys.argv[2])}
    connection.sendall(json.dumps(request).encode() + b"\\n")
    print([*connection.makefile()][-1])
"""
"""Asks the notifier, and prints the last event: the closing one unless it died."""
WATCH = f"""
import glob, re, sys, time
found, mark, end = set(), re.compile(rb"{MARK}"), time.monotonic() + 3
while time.monotonic() < end:
    for path in glob.glob("/proc/[0-9]*/cmdline") + glob.glob("/proc/[0-9]*/environ"):
        try:
            content = open(path, "rb").read()
        except OSError:
            continue
        if b"apprise_program" in content:
            found.add("the child was seen")
        if mark.search(content):
            found.add(path + ": " + repr(content))
print(found)
"""
"""Looks at arguments and environment of every process for a while, and prints where a secret is."""
PLACES = "/var/lib/appliance* /var/lib/systemd /run/appliance* /run/systemd/units /tmp"
"""Where our processes, and systemd for them, write files."""
CORES = "find / /var/lib/systemd/coredump -maxdepth 1 -name 'core*' -type f"


@pytest.fixture(scope="module")
def box(image: Image) -> Iterator[Box]:
    """A box with three targets of one local server, a log at DEBUG, and a notifier that leaves soon."""
    with Box(image) as box:
        Fleet(box).people()
        box.write(f"{TOOLS}/ntfy_server.py", Path(ntfy_server.__file__).read_text())
        box.write(f"{TOOLS}/ask.py", ASK)
        box.write(f"{TOOLS}/watch.py", WATCH)
        box.write("/etc/appliance/appliance.toml", 'log_level = "debug"\n')
        box.run(
            "systemd-run", "-q", "--unit=ntfy", "/usr/bin/python3", f"{TOOLS}/ntfy_server.py",
            f"--port={PORT}",
        )  # fmt: skip
        drop_in = "[Service]\nExecStart=\nExecStart=/opt/appliance/current/bin/python -I -m appliance.notifier 1\n"
        box.unit(f"{NOTIFIER}.d/soon.conf", drop_in)
        box.run("systemctl restart appliance-health")
        for name, url in TARGETS.items():
            click = ("--click", f"http://box/{SECRETS['click']}") if name == "phone" else ()
            box.run("appliance", "target", "add", name, "--url", "-", *click, stdin=f"{url}\n")
        box.run("appliance target heartbeat", stdin=f"http://{AT}/ping/{SECRETS['heartbeat']}\n")
        yield box


@pytest.fixture(autouse=True)
def healthy(box: Box) -> None:
    """Each test begins with a server without faults."""
    control(box, {})


def control(box: Box, orders: Mapping[str, object]) -> None:
    """Have the server fail, or be well again."""
    box.run(f"curl -sf -d '{json.dumps(orders)}' http://{AT}/_control >/dev/null")


def state(box: Box) -> Mapping[str, Any]:
    """Return everything that the server has received."""
    received: Mapping[str, Any] = json.loads(box.run(f"curl -sf http://{AT}/_state").stdout)
    return received


def ask(
    box: Box, verb: str, *, user: str = "appliance-health", **args: object
) -> Mapping[str, Any]:
    """The closing event of a conversation with the notifier."""
    done = box.run("/usr/bin/python3", f"{TOOLS}/ask.py", verb, json.dumps(args), user=user)
    event: Mapping[str, Any] = json.loads(done.stdout)
    return event


def send(box: Box, target: str, body: str, sequence: str = "") -> str:
    """Outcome of a message."""
    message = {"title": "▼ genesis down", "body": body, "severity": "critical"}
    event = ask(box, "send", target=target, message={**message, "sequence_id": sequence})
    return str(event["outcome"])


def test_messages_arrive(box: Box) -> None:
    """A message arrives at the phone through ntfy's sender, and at a webhook through apprise."""
    assert send(box, "phone", "no answer since 04:10 ✓", "garage-A1") == "sent"
    assert send(box, "tablet", "no answer since 04:10 ✓") == "sent"
    assert send(box, "hook", "no answer since 04:10 ✓") == "sent"
    assert ask(box, "ping")["outcome"] == "sent"
    received = state(box)
    phone, tablet = received["delivered"][-2:]
    assert (phone["topic"], phone["title"], phone["priority"]) == (
        SECRETS["topic"],
        "▼ genesis down",
        5,
    )
    assert tablet["message"] == "no answer since 04:10 ✓"
    assert json.loads(received["hooks"][-1]["body"])["message"] == tablet["message"]
    assert received["pings"][-1]["path"] == f"/ping/{SECRETS['heartbeat']}"
    assert f"{SECRETS['user']}:{SECRETS['password']}" in received["credentials"]
    assert SECRETS["token"] in received["credentials"]


def test_an_episode_is_one_entry_and_a_silent_box_is_told(box: Box) -> None:
    """Firing and resolving are one entry; a scheduled message comes once the pushes cease."""
    assert [send(box, "phone", text, "garage-A2") for text in ("down", "up")] == ["sent", "sent"]
    silent = {
        "title": "▼ silent",
        "body": "",
        "severity": "critical",
        "sequence_id": "garage-silent",
    }
    for _ in range(2):
        answer = ask(box, "schedule", target="phone", message=silent, delay_s=300)
        assert answer["outcome"] == "sent", answer
    assert ask(box, "schedule", target="hook", message=silent, delay_s=300)["outcome"] == "refused"
    control(box, {"skip_s": 301})
    entries = {
        e["sequence_id"]: (e["shown"]["title"], e["messages"]) for e in state(box)["entries"]
    }
    assert entries["garage-A2"] == ("▼ genesis down", 2)
    assert entries["garage-silent"] == ("▼ silent", 1)


def test_a_notifier_that_is_killed_loses_nothing(box: Box) -> None:
    """Killed in the middle of a message, the next one answers; sent again, it is still one entry."""
    ask(box, "targets")
    control(box, {"delay_s": 1.0})
    message = {"title": "t", "body": "b", "severity": "warning", "sequence_id": "garage-A3"}
    args = json.dumps({"target": "phone", "message": message})
    with box.stream(
        "/usr/bin/python3", f"{TOOLS}/ask.py", "send", args, user="appliance-health"
    ) as asked:
        box.wait_for(f"ss -Htn state established dport = :{PORT} | grep -q .")
        box.run(f"systemctl kill --kill-whom=main --signal=KILL {NOTIFIER}")
        out, _ = asked.process.communicate(timeout=30)
    assert json.loads(out)["event"] == "hello"
    control(box, {})
    assert send(box, "phone", "b", "garage-A3") == "sent"
    entries = [e for e in state(box)["entries"] if e["sequence_id"] == "garage-A3"]
    assert len(entries) == 1


def test_it_leaves_when_nobody_asks(box: Box) -> None:
    """Without a request the notifier ends in good order, says why, and its socket starts it again."""
    ask(box, "targets")
    box.wait_for(f"systemctl show -P ActiveState {NOTIFIER} | grep -qx inactive", timeout_s=20)
    assert box.run(f"systemctl show -P Result {NOTIFIER}").stdout == "success\n"
    told = box.run(f"systemctl show -P StatusText {NOTIFIER}").stdout
    assert told == "nobody asked for 1 s; its socket starts it again\n"
    answer = ask(box, "targets")
    assert [row["name"] for row in answer["targets"]] == list(TARGETS)
    memory = int(
        box.run(f"systemctl show -P MemoryCurrent {NOTIFIER}").stdout.replace("[not set]", "0")
    )
    assert memory < 40 << 20
    rss = box.run(f"ps -o rss= -p $(systemctl show -P MainPID {NOTIFIER})").stdout
    assert int(rss) < 40 << 10


def test_an_operator_tries_the_whole_way(box: Box) -> None:
    """A test goes through the agent's outbox to the phone, and ends with 0 once the server has it, with 1 if refused."""
    done = box.run("appliance target test phone", user=OPERATOR, check=False)
    assert (done.returncode, "sent" in done.stdout) == (0, True), done.stdout + done.stderr
    assert state(box)["delivered"][-1]["topic"] == SECRETS["topic"]
    control(box, {"status": 400})
    done = box.run("appliance target test phone", user=OPERATOR, check=False)
    assert done.returncode == 1, done.stdout + done.stderr


def test_only_the_notifier_has_the_targets(box: Box) -> None:
    """No other user reads the file, the credential or the process, or asks for a message."""
    ask(box, "targets")
    pid = box.run(f"systemctl show -P MainPID {NOTIFIER}").stdout.strip()
    ways = (
        "cat /etc/appliance/targets.toml",
        f"cat /run/credentials/{NOTIFIER}/targets",
        f"cat /proc/{pid}/environ",
        f"dd if=/proc/{pid}/mem bs=1 count=1 skip=4194304",
        f"cat /proc/{pid}/root/etc/hostname",
    )
    users = ("appliance", "appliance-gateway", "appliance-health", "appliance-checker", OPERATOR)
    for user in (*users, "appliance-backend"):
        for way in ways:
            assert box.run(way, user=user, check=False).returncode != 0, (user, way)
        if user != "appliance-health":
            done = box.run(
                "/usr/bin/python3", f"{TOOLS}/ask.py", "targets", "{}", user=user, check=False
            )
            assert "PermissionError" in done.stderr, user
    # The same ways are open to root, so they are ways.
    assert box.run(ways[0]).stdout.count("SeCrEt") == len(SECRETS)
    # As the user of the notifier, outside of its unit, the file stays closed.
    assert box.run(ways[0], user=USER, check=False).returncode != 0


def test_a_box_without_targets_starts_it(box: Box) -> None:
    """Without the file the notifier knows no target, says so, and does not start again and again."""
    box.run("mv /etc/appliance/targets.toml /etc/appliance/away")
    try:
        box.run(f"systemctl stop {NOTIFIER}")
        answer = ask(
            box, "send", target="phone", message={"title": "", "body": "", "severity": "info"}
        )
        assert (answer["outcome"], answer["text"]) == ("refused", "there is no such target")
        box.write("/etc/appliance/targets.toml", "[[target]]\nurl = 'SeCrEt9'\n")
        box.run(f"systemctl stop {NOTIFIER}")
        answer = ask(
            box, "send", target="phone", message={"title": "", "body": "", "severity": "info"}
        )
        assert answer["outcome"] == "retry"
        assert "targets.toml:2" in answer["text"]
    finally:
        box.run(f"mv /etc/appliance/away /etc/appliance/targets.toml; systemctl stop {NOTIFIER}")


def test_no_secret_shows_anywhere(box: Box) -> None:
    """Eight planted secrets are in no log at DEBUG, answer, file, argument or environment, nor in a core."""
    with box.stream("/usr/bin/python3", f"{TOOLS}/watch.py") as watching:
        for orders in ({}, {"status": 302, "times": 2}, {"status": 400, "times": 1}):
            control(box, orders)
            for name in TARGETS:
                send(box, name, "text")
            ask(box, "ping")
        out, _ = watching.process.communicate(timeout=60)
    assert "the child was seen" in out
    answers = json.dumps(ask(box, "targets"))
    cli = [
        box.run("appliance", *words, check=False)
        for words in (
            ("target", "ls"),
            ("target", "ls", "--json"),
            ("target", "qr", "phone"),
            ("target", "add", "phone", "--url", "-"),
            ("config", "show"),
            ("status", "--json"),
            ("alerts", "outbox"),
        )
    ]
    shown = "".join(done.stdout + done.stderr for done in cli)
    journal = box.run(
        "journalctl --no-pager -o json --all | grep -v '_SYSTEMD_UNIT.*ntfy.service'"
    ).stdout
    assert "phone: retry" in journal
    ask(box, "targets")
    box.run(f"systemctl kill --kill-whom=main --signal=SEGV {NOTIFIER}")
    box.wait_for(f"journalctl -u {NOTIFIER} | grep -q 'status=11/SEGV'")
    files = box.run(f"grep -rlaP '{MARK}' {PLACES}; {CORES}", check=False).stdout
    places = {"processes": out, "answers": answers, "command": shown, "journal": journal}
    for place, text in places.items():
        low = text.lower()
        assert [s for s in SECRETS.values() if s.lower() in low] == [], place
    assert files == ""
