"""Operators' tokens on a booted box: what is done by one, as whom, and what is refused."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import pytest

from tests.system.fleet import OPERATOR, STRANGER, Fleet
from tests.system.rig import Box, Image

AT: Final = "http://127.0.0.1:8011/api/v1"
WHO: Final = f"{OPERATOR} (token phone)"


@dataclass(frozen=True, slots=True)
class TokenBox:
    """A box on which a serves and b could, with a token of the operator."""

    fleet: Fleet
    token: str

    def ask(
        self, method: str, path: str, body: object = None, *, token: str | None = "", key: str = ""
    ) -> tuple[int, Mapping[str, Any]]:
        """Return status and document of a request; `token` empty: the operator's, None: none."""
        words = ["curl", "-sS", "-m", "60", "-X", method, "-w", "\n%{http_code}", AT + path]
        words += ["-H", "@-"] if token is not None else []
        words += ["-H", f"Idempotency-Key: {key}"] if key else []
        words += ["-H", "Content-Type: application/json", "-d", json.dumps(body)] if body else []
        # From standard input: every user of the box can read arguments.
        header = f"Authorization: Bearer {token or self.token}\n"
        text, _, status = self.fleet.box.run(*words, stdin=header).stdout.rpartition("\n")
        return int(status), json.loads(text)

    def until_over(self, operation: int) -> Mapping[str, Any]:
        """Return the row of an operation when it has ended."""
        self.fleet.box.wait_for(
            "appliance status --json | tr -d ' \\n'"
            f' | grep -q \'"last_operation":{{"id":{operation},\'',
            timeout_s=30,
        )
        row: Mapping[str, Any] = self.fleet.status()["last_operation"]
        return row


def made(fleet: Fleet, name: str, *options: str, user: str = OPERATOR) -> str:
    """Return the text of a new token."""
    return fleet.box.run("appliance", "token", "add", name, *options, user=user).stdout.strip()


@pytest.fixture(scope="module")
def web(image: Image) -> Iterator[TokenBox]:
    with Box(image) as box:
        fleet = Fleet(box)
        fleet.people()
        fleet.pair()
        fleet.switch("a")
        yield TokenBox(fleet, made(fleet, "phone", "--for", "1h"))


def test_a_switch_is_the_operators(web: TokenBox) -> None:
    """The journal, the status and the record name the operator and the token, not the web process."""
    status, started = web.ask("POST", "/switch", {"profile": "b"}, key="k1")
    assert (status, started["kind"], started["target"]) == (202, "switch", ["b"])
    row = web.until_over(started["operation"])
    assert (row["outcome"], row["requested_by"]) == ("done", WHO)
    assert "b" in web.fleet.active()
    assert f"switch b for {WHO}" in web.fleet.box.journal("-u", "appliance-supervisor")
    again = web.ask("POST", "/switch", {"profile": "b"}, key="k1")
    assert again == (202, started)
    assert web.ask("POST", "/switch", {"profile": "a"}, key="k1")[0] == 422
    assert "b" in web.fleet.active()


def test_a_mark_and_a_silence_are_the_operators(web: TokenBox) -> None:
    """Supervisor and health agent both ask whose token it is."""
    assert web.ask("PUT", "/profiles/a/mark", {"mark": "live"})[0] == 200
    assert f"a is marked live by {WHO}" in web.fleet.box.journal("-u", "appliance-supervisor")
    assert web.ask("POST", "/silences", {"name": "a", "for_s": 600})[0] == 200
    alerts = json.loads(web.fleet.box.run("appliance alerts --json").stdout)
    assert [silence["by"] for silence in alerts["silences"]] == [WHO]
    assert web.ask("DELETE", "/silences/a")[0] == 200


def test_a_token_that_is_none_changes_nothing(web: TokenBox) -> None:
    """Without one, with an altered, a removed, an expired one, and of a user who is no operator any more."""
    box, before = web.fleet.box, web.fleet.status()["last_operation"]["id"]
    removed = made(web.fleet, "old")
    box.run("appliance", "token", "rm", "old", user=OPERATOR)
    expired = made(web.fleet, "short", "--for", "1s")
    box.run("useradd -M -G appliance-operators eva")
    former = made(web.fleet, "evas", "--user", "eva", user="root")
    assert web.ask("POST", "/switch", {"profile": "a", "dry_run": True}, token=former)[0] == 200
    box.run("gpasswd -d eva appliance-operators")
    box.run("sleep 1")  # real time: the token expires by the clock of the box
    altered = web.token[:-1] + ("0" if web.token[-1] != "0" else "1")
    for token in (None, altered, removed, expired, former, "apt_", "nonsense"):
        status, problem = web.ask("POST", "/switch", {"profile": "a"}, token=token)
        assert status == 401, (token, problem)
        assert web.ask("PUT", "/profiles/a/mark", {"mark": "retired"}, token=token)[0] == 401
        assert web.ask("POST", "/silences", {"name": "a"}, token=token)[0] == 401
    assert web.fleet.status()["last_operation"]["id"] == before


def test_tokens_are_for_operators(web: TokenBox) -> None:
    """A stranger makes none, and an operator makes none for another one."""
    box = web.fleet.box
    assert box.run("appliance token add x", user=STRANGER, check=False).returncode == 77
    box.run("id eva || useradd -M -G appliance-operators eva")
    other = box.run("appliance", "token", "add", "x", "--user", "eva", user=OPERATOR, check=False)
    assert (other.returncode, "only root" in other.stderr) == (77, True)


@pytest.mark.parametrize("user", ["daemon", OPERATOR, "appliance-health", "appliance-gateway"])
def test_only_the_web_process_presents_tokens(web: TokenBox, user: str) -> None:
    """The kernel keeps everybody else from the socket, also an agent that has seen a token."""
    opened = "import socket; socket.socket(socket.AF_UNIX).connect('/run/appliance/token.sock')"
    done = web.fleet.box.run("python3", "-c", opened, user=user, check=False)
    assert "PermissionError" in done.stderr


def test_the_token_is_nowhere(web: TokenBox) -> None:
    """No journal, no process's arguments or environment and no file of the box has its secret."""
    box, secret = web.fleet.box, web.token.rpartition("_")[2]
    assert web.ask("POST", "/switch", {"profile": "b", "dry_run": True})[0] == 200
    box.run("journalctl --sync")
    box.run("cat >/run/pattern", stdin=secret)
    planted = box.run("grep -rlaF -f /run/pattern /run/pattern", check=False).stdout
    assert planted == "/run/pattern\n"
    places = "/var/lib/appliance* /var/cache/appliance* /run/appliance* /etc/appliance /var/log"
    found = box.run(f"grep -rlaF -f /run/pattern {places}", check=False).stdout
    assert found == ""
    assert secret not in box.journal()
    processes = "/proc/[0-9]*/cmdline /proc/[0-9]*/environ"
    assert box.run(f"grep -laF -f /run/pattern {processes}", check=False).stdout == ""
