"""Runbooks: one for every alert, and commands that exist."""

import re
import shlex
from pathlib import Path

import pytest

from appliance.alerts.rules import RULES
from appliance.cli.argument_parser import build_parser
from appliance.model.alerts import AlertRule

PAGE = (Path(__file__).parents[2] / "docs" / "runbooks.md").read_text("utf-8")
OURS = ("box-silent", "health-agent-dead")
"""Runbooks of the messages that come without a rule."""
PROGRAMS = {"appliance", "systemctl", "journalctl", "ss", "nvidia-smi", "df", "du", "ssh"}
EXAMPLES = {"NAME": "genesis", "OTHER": "aeon", "COMMAND": "true"}


def sections() -> dict[str, str]:
    """Return the text of each runbook by its anchor."""
    parts = re.split(r"^## (.*)$", PAGE, flags=re.MULTILINE)[1:]
    return dict(zip(parts[::2], parts[1::2], strict=True))


def commands() -> list[str]:
    """Return everything on the page, and in the words of rules, that is typed."""
    code = re.findall(r"`([^`]+)`", PAGE)
    typed = [text for text in code if text.split()[0] in PROGRAMS and " " in text]
    return [*typed, *(words.command for words in RULES.values())]


def test_every_rule_has_a_runbook() -> None:
    """The last line of a message names a section, and every section is named by a message."""
    assert set(sections()) == {*AlertRule, *OURS}


@pytest.mark.parametrize("name", sorted({*AlertRule, *OURS} - {"test"}))
def test_each_says_what_it_means_what_to_do_and_when_it_is_over(name: str) -> None:
    """The four parts are in this order."""
    words = re.findall(r"\*\*(Means|Look at|Type|Over)\b", sections()[name])
    assert words == ["Means", "Look at", "Type", "Over"]


@pytest.mark.parametrize("command", sorted(set(commands())))
def test_every_command_exists(command: str) -> None:
    """A command is one of a program that a box has, and one of ours is one that the parser takes."""
    for name, example in EXAMPLES.items():
        command = command.replace(name, example)
    program, *arguments = shlex.split(command)
    assert program in PROGRAMS
    if program == "appliance" and arguments != ["start"]:
        build_parser(arguments).parse_args(arguments)
