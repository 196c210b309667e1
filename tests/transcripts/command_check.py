"""Check of a shell command without running it: its words exist in this tree.

Verbs and options are those of the grammar, units are those of ``units/``, fields and events of the journal
are those of the code, targets of make are in the Makefile, and files of the checkout are there.
"""

import contextlib
import io
import re
import shlex
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Final

from appliance.cli.argument_parser import build_parser
from appliance.cli.grammar import PROGRAM
from appliance.model.journal_events import JournalEvent, JournalField, event_name

ROOT: Final = Path(__file__).parents[2]
_CHECKOUT: Final = ("docs/", "profiles/", "scripts/", "tests/", "units/")
_SHARE: Final = "/usr/local/share/appliance/"
"""Directory of the installed documentation and example profiles."""
_OPERATORS: Final = frozenset({"|", "||", "&", "&&", ";", "(", ")", "{", "}", "do", "then"})
_ASSIGNMENT: Final = re.compile(r"\w+=.*", re.DOTALL)
_HEREDOC_BODY: Final = re.compile(
    r"(<<-?\s*['\"]?(\w+)['\"]?[^\n]*)\n.*^\2$", re.DOTALL | re.MULTILINE
)
_UNIT: Final = re.compile(r"appliance[\w@.-]*")
_UNIT_PROGRAMS: Final = frozenset({"systemctl", "journalctl", "systemd-analyze"})
_FIELD: Final = re.compile(r"(APPLIANCE_\w+)=(.*)", re.DOTALL)


def faults(command: str) -> list[str]:
    """Return what is wrong with a shell command as far as it is about this project."""
    try:
        return [fault for words in simple_commands(command) for fault in _faults(words)]
    except ValueError as error:
        return [f"not a shell command: {error}"]


def simple_commands(command: str) -> Iterator[list[str]]:
    """Yield the words of each command of a shell line, without redirections' bodies. Raises ValueError."""
    text = _HEREDOC_BODY.sub(r"\1", command).replace("\\\n", " ").replace("\n", " ; ")
    reader = shlex.shlex(text, posix=True, punctuation_chars="|&;()<>")
    reader.whitespace_split = True
    words: list[str] = []
    for word in reader:
        if word in _OPERATORS:
            if words:
                yield words
            words = []
        else:
            words.append(word)
    if words:
        yield words


def _faults(words: Sequence[str]) -> Iterator[str]:
    words = _without_prefixes(words)
    if not words:
        return
    program, arguments = words[0], words[1:]
    if program == PROGRAM:
        yield from parse_faults(arguments[: _redirection(arguments)])
    elif program == "make":
        targets = [word for word in arguments if "=" not in word and not word.startswith("-")]
        yield from (
            f"make {target}: no such target" for target in targets if target not in make_targets()
        )
    elif program in _UNIT_PROGRAMS:
        yield from _unit_faults(arguments)
    elif program.endswith("python") and arguments[:1] == ["-m"]:
        module = ROOT / arguments[1].replace(".", "/")
        if arguments[1].startswith("tests") and not (
            module.is_dir() or module.with_suffix(".py").is_file()
        ):
            yield f"{arguments[1]}: no such module"
    elif program.startswith("scripts/") and (ROOT / program).is_file():
        script = (ROOT / program).read_text("utf-8") + _beside(ROOT / program)
        options = [word for word in arguments if word.startswith("--")]
        yield from (
            f"{program} {option}: no such option" for option in options if option not in script
        )
    for word in words:
        yield from _file_faults(word)


def parse_faults(arguments: Sequence[str]) -> Iterator[str]:
    """Yield the error of parsing the arguments of a command line of the appliance."""
    told = io.StringIO()
    with contextlib.redirect_stderr(told), contextlib.redirect_stdout(told):
        try:
            build_parser(arguments).parse_args(arguments)
        except SystemExit as ended:
            if ended.code:
                yield f"{PROGRAM} {shlex.join(arguments)}: {told.getvalue().strip()}"


def _without_prefixes(words: Sequence[str]) -> Sequence[str]:
    while words:
        if words[0] == "sudo":
            words = words[3:] if words[1:2] == ["-u"] else words[1:]
        elif words[0] in {"if", "while", "until", "!", "env"} or _ASSIGNMENT.fullmatch(words[0]):
            words = words[1:]
        else:
            break
    return words


def _redirection(words: Sequence[str]) -> int:
    return next((n for n, word in enumerate(words) if set(word) <= {"<", ">", "&"}), len(words))


def _unit_faults(arguments: Sequence[str]) -> Iterator[str]:
    for word in arguments:
        if (field := _FIELD.fullmatch(word)) is not None:
            if field[1] not in {one.value for one in JournalField}:
                yield f"{field[1]}: no such field"
            if field[1] == JournalField.EVENT.value and field[2] not in events():
                yield f"{field[2]}: no such event"
        elif _UNIT.fullmatch(word) and not is_unit(word):
            yield f"{word}: no such unit"


def is_unit(name: str) -> bool:
    """Tell whether a name is one of a static unit, or of a model's."""
    if name.startswith("appliance-backend-"):
        return True
    shipped = {path.name for path in (ROOT / "units").iterdir()}
    return name in shipped or f"{name}.service" in shipped


def _file_faults(word: str) -> Iterator[str]:
    file = word.removeprefix(_SHARE) if word.startswith(_SHARE) else word
    is_one_file = file.startswith(_CHECKOUT) and not any(sign in file for sign in "*{$…")
    if is_one_file and not (ROOT / file).exists():
        yield f"{word}: no such file"


def _beside(script: Path) -> str:
    """Return the text of the program that a script starts, which reads its options."""
    program = script.with_suffix(".py")
    return program.read_text("utf-8") if program.is_file() else ""


@cache
def make_targets() -> frozenset[str]:
    """Return the targets of the Makefile."""
    text = (ROOT / "Makefile").read_text("utf-8").replace("\\\n", " ")
    rules = re.findall(r"^([\w. -]+?)\s*:(?!=)", text, re.MULTILINE)
    return frozenset(target for rule in rules for target in rule.split())


@cache
def events() -> frozenset[str]:
    """Return the names of the main events in the journal."""
    return frozenset(event_name(event) for event in JournalEvent)
