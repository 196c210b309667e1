"""Pins of the command line: exit status, stdout and stderr of every verb, as text and with --json.

A script of `cli_scripts` is played twice, each time on a new box. Events of progress within a phase are left
out: only who follows already gets them, and how soon somebody does depends on the machine.
"""

from typing import Final

from tests.pins.cli_scripts import AS_ROOT, SCRIPTS, Script
from tests.pins.cli_session import CliSession, cli_session
from tests.pins.pin_files import file_name
from tests.pins.status_box import catalogue_in

_PROGRESS: Final = '"state": "progress"'


def make() -> dict[str, str]:
    """Make the transcripts of verbs for everybody, by file."""
    return {
        file_name(name): _pin(script) for name, script in SCRIPTS.items() if name not in AS_ROOT
    }


def make_as_root() -> dict[str, str]:
    """Make the transcripts of verbs for root, by file."""
    return {file_name(name): _pin(script) for name, script in SCRIPTS.items() if name in AS_ROOT}


def _pin(script: Script) -> str:
    return "".join(_played(script, *more) for more in ((), ("--json",)))


def _played(script: Script, *more: str) -> str:
    text = ""
    with cli_session(catalogue_in, *script.committed) as it:
        for step in script.steps:
            if not isinstance(step, str):
                step(it)
            elif not (more and step.startswith("~")):
                text += _said(it, step, *more)
    return text


def _said(it: CliSession, step: str, *more: str) -> str:
    """Run a command with `more` options behind its verb; return the command and its output."""
    verb, *rest = step.lstrip("~<").split()
    words = [verb, *more, *rest]
    done = it.run(*words)
    last = -1 if step.startswith("<") else None
    out, err = (_lines(text)[last:] for text in (done.out, done.err))
    shown = [f"$ appliance {' '.join(words)}", *(f"  {line}" for line in out)]
    return "\n".join([*shown, *(f"! {line}" for line in err), f"= {done.status}\n"])


def _lines(text: str) -> list[str]:
    """Return the lines of a stream; a word marks one without an end."""
    text = text if not text or text.endswith("\n") else f"{text}<no end>\n"
    return [line for line in text.split("\n")[:-1] if _PROGRESS not in line]
