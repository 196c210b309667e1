"""Verb `appliance target`: addresses come in without being shown, and none goes out."""

import io
import json
from pathlib import Path

import pytest

from appliance.cli.argument_parser import build_parser
from appliance.cli.arguments import Arguments
from appliance.cli.failures import status_of
from appliance.cli.verbs.target import carry_out
from appliance.install.target_desk import TargetDesk
from appliance.model.alerts import Severity
from appliance.model.errors import ApplianceError
from appliance.model.targets import Target
from tests.fakes.cli_box import Ended
from tests.fakes.cli_call import Screen, call
from tests.fakes.systemctl import FakeSystemctl

PHONE = "ntfys://tk_SECRET1@ntfy.example:8443/SECRET2"
HOOK = "json://SECRET3:SECRET4@hooks.example/SECRET5"


class Box:
    """Targets in a directory, and the verb on them."""

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.file = path / "targets.toml"
        self.desk = TargetDesk(self.file, path / "applied/targets.json", FakeSystemctl())
        self._monkeypatch = monkeypatch

    def target(self, *words: str, stdin: str = "", terminal: bool = False) -> Ended:
        """Run the verb with what a person types or pipes."""
        self._monkeypatch.setattr("sys.stdin", io.StringIO(stdin))
        screen = Screen()
        streams = screen.streams()
        if terminal:
            streams = streams.replaced(out=streams.out.replaced(interactive=True))
        arguments = build_parser(["target", *words]).parse_args(["target", *words], Arguments())
        try:
            status = carry_out(self.desk, arguments, streams)
        except ApplianceError as error:
            status = status_of(error)
            screen.err.write(f"{error}\n")
        return Ended(status=status, out=screen.out.getvalue(), err=screen.err.getvalue())


@pytest.fixture
def box(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Box:
    return Box(tmp_path, monkeypatch)


def test_an_address_comes_from_standard_input(box: Box) -> None:
    """A target is added with all its keys, and nothing of its address is printed."""
    words = (
        "add",
        "phone",
        "--min-severity",
        "warning",
        "--box-silent",
        "no",
        "--click",
        "http://b/",
    )
    added = box.target(*words, stdin=f"{PHONE}\n")
    assert (added.status, added.err) == (0, "")
    assert "appliance target test phone" in added.out
    (target,) = box.desk.targets().targets
    assert target == Target(
        name="phone",
        url=PHONE,
        min_severity=Severity.WARNING,
        click_url="http://b/",
        box_silent=False,
    )
    assert box.target("add", "hook", "--url", "-", stdin=f"{HOOK}\n").status == 0
    listed = box.target("ls")
    assert listed.out.splitlines() == [
        "NAME   KIND  SERVER             TOLD OF",
        "phone  ntfy  ntfy.example:8443  warnings, critical",
        "hook   json                     all",
        "outside watch: none",
    ]
    documents = box.target("ls", "--json").out
    assert json.loads(documents) == {
        "targets": [
            {
                "name": "phone",
                "kind": "ntfy",
                "server": "ntfy.example:8443",
                "min_severity": "warning",
            },
            {"name": "hook", "kind": "json", "server": "", "min_severity": "info"},
        ],
        "heartbeat": False,
    }
    assert "SECRET" not in added.out + listed.out + documents


def test_an_address_on_the_command_line_is_warned_of(
    box: Box,
) -> None:
    """An operator who gives it as an argument learns who could read it."""
    added = box.target("add", "phone", "--url", PHONE)
    assert added.status == 0
    told = added.err
    assert "list of processes" in told
    assert "SECRET" not in told


@pytest.mark.parametrize(
    ("url", "fault"),
    [
        ("", "the address is no address such as"),
        ("ntfy://h/SECRET?x", "the address has a query"),
        ("nosuch://SECRET/", "apprise knows no such address"),
        ("discord://SECRET", "apprise cannot use this address"),
    ],
)
def test_an_address_that_nothing_can_reach_is_refused(box: Box, url: str, fault: str) -> None:
    """A wrong address is told when it is added, without showing it, and is not kept."""
    refused = box.target("add", "phone", stdin=f"{url}\n")
    assert refused.status in {2, 78}
    assert fault in refused.err
    assert "SECRET" not in refused.err + refused.out
    assert not box.file.exists()


def test_a_terminal_shows_a_code_and_no_text(box: Box) -> None:
    """The code that subscribes a phone is drawn on a terminal alone, and again when asked for."""
    added = box.target("add", "phone", stdin=PHONE, terminal=True)
    again = box.target("qr", "phone", terminal=True)
    code = [line for line in again.out.splitlines() if set(line) <= set("█▀▄ ") and line]
    assert len(code) >= 15
    assert len({len(line) for line in code}) == 1
    assert all(line in added.out for line in code)
    assert "SECRET" not in added.out + again.out
    piped = box.target("qr", "phone")
    assert (piped.status, piped.out) == (2, "")
    assert "█" not in box.target("add", "other", stdin=PHONE).out


def test_a_code_is_of_an_ntfy_topic(box: Box) -> None:
    """Other services, and a target that does not exist, have no code."""
    box.target("add", "hook", stdin=HOOK)
    assert "no topic of ntfy" in box.target("qr", "hook", terminal=True).err
    assert "there is no target phone" in box.target("qr", "phone", terminal=True).err


def test_a_credential_without_encryption_is_warned_of(box: Box) -> None:
    """A password that would go over the network as it is, is told when it is added."""
    added = box.target("add", "phone", stdin="ntfy://u:SECRET@box.lan/t")
    assert "ntfys:// encrypts" in added.err
    assert "SECRET" not in added.err


def test_the_outside_watch_is_set_and_removed(box: Box) -> None:
    """The address of the watch is a secret as any, and an empty line removes it."""
    assert (
        box.target("heartbeat", stdin="https://hc.example/SECRET\n").out == "pinged once a minute\n"
    )
    assert box.target("ls").out.splitlines()[-1] == "outside watch: pinged once a minute"
    assert "begins with https://" in box.target("heartbeat", stdin="SECRET").err
    assert box.target("heartbeat", "--json", stdin="\n").status == 0
    assert box.target("ls").out.splitlines()[-1] == "outside watch: none"


def test_a_target_is_removed(box: Box) -> None:
    """A target that was removed is told of nothing; one that does not exist is an error."""
    box.target("add", "phone", stdin=PHONE)
    assert box.target("rm", "phone").status == 0
    assert "nobody is told of alerts" in box.target("ls").out
    assert "there is no target phone" in box.target("rm", "phone").err


@pytest.mark.parametrize(
    "words",
    [
        ("add",),
        ("ls", "phone"),
        ("heartbeat", "x"),
        ("rm", "phone", "--url", "x"),
        ("ls", "--click", "x"),
        ("heartbeat", "--box-silent", "yes"),
    ],
)
def test_arguments_belong_to_their_action(words: tuple[str, ...]) -> None:
    """A name or an option that an action does not take is refused before anything is read."""
    ended = call("target", *words)
    assert ended.status == 2
    assert "appliance target --help" in ended.err
