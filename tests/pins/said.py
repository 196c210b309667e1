"""Pins of the command line: exit status, stdout and stderr of every verb, as text and with --json.

A script of `cli_scripts` is played twice, each time on a new box. Events of progress within a phase are left
out: only who follows already gets them, and how soon somebody does depends on the machine.
"""

from typing import Final

from tests.pins.box_states import catalogue_in
from tests.pins.cli_scripts import AS_ROOT, SCRIPTS, Script
from tests.pins.town import Town, town

_PROGRESS: Final = '"state": "progress"'


def make() -> dict[str, str]:
    """The transcripts that anybody can make, by file."""
    return {f"{name}.txt": _pin(script) for name, script in SCRIPTS.items() if name not in AS_ROOT}


def make_as_root() -> dict[str, str]:
    """Those that only root can make."""
    return {f"{name}.txt": _pin(script) for name, script in SCRIPTS.items() if name in AS_ROOT}


def _pin(script: Script) -> str:
    return "".join(_played(script, *more) for more in ((), ("--json",)))


def _played(script: Script, *more: str) -> str:
    text = ""
    with town(catalogue_in, *script.committed) as it:
        for step in script.steps:
            if not isinstance(step, str):
                step(it)
            elif not (more and step.startswith("~")):
                text += _said(it, step, *more)
    return text


def _said(it: Town, step: str, *more: str) -> str:
    """What a command said, with `more` options right behind its verb."""
    verb, *rest = step.lstrip("~<").split()
    words = [verb, *more, *rest]
    done = it.run(*words)
    last = -1 if step.startswith("<") else None
    out, err = (_lines(text)[last:] for text in (done.out, done.err))
    shown = [f"$ appliance {' '.join(words)}", *(f"  {line}" for line in out)]
    return "\n".join([*shown, *(f"! {line}" for line in err), f"= {done.status}\n"])


def _lines(text: str) -> list[str]:
    """The lines of a stream; one that is cut off ends in a word for that."""
    text = text if not text or text.endswith("\n") else f"{text}<no end>\n"
    return [line for line in text.split("\n")[:-1] if _PROGRESS not in line]
