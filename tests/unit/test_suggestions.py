"""Commands that texts suggest: each found in the sources is typed, as a person would.

A suggestion begins with the name of a program without an article, and ends where prose goes on. What the text fills in when it is made
(``{name}``, ``%s``, ``@APPLIANCE_PROFILE@``) is an example here, a constant its value.
"""

import ast
import importlib
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Final

from appliance.cli.grammar import PROGRAM, VERBS
from tests.transcripts.command_check import ROOT, is_unit, parse_faults

EXAMPLE: Final = "genesis"
_OPENS: Final = r"(?<![\w/.@-])(?<![Tt]he )(?<!an )"
_COMMAND: Final = re.compile(_OPENS + r"(appliance|systemctl|journalctl|usermod|nvidia-smi) (?=\S)")
_END: Final = re.compile(r"[:;,.?!)\"'`\]<]+$|['`\"<]")
_PLACE: Final = re.compile(r"\{\{.*?\}\}|\{[^{}]*\}|@[A-Z_]+@|%[sdr]|\$\w+")
_ARGUMENT: Final = re.compile(
    rf"-{{1,2}}\w[\w-]*=?\S*|\d[\w:]*|[A-Z]{{2,}}[A-Z_,=]*|\S*{EXAMPLE}\S*|--|N|phone"
)
"""Option, number, time, metavariable, example, or the end of options."""
_PROSE: Final = frozenset(
    [
        "always",
        "by",
        "cannot",
        "decides",
        "does",
        "ends",
        "finds",
        "for",
        "in",
        "is",
        "makes",
        "needs",
        "on",
        "serves",
        "sizes",
        "takes",
        "that",
        "to",
    ]
)
"""Words behind a program's name in a sentence; any other word is taken for a verb."""
_MENTIONS: Final = frozenset({"bench", "edit", "mark", "profile new", "run", "switch"})
"""Commands that are named as a whole, without what they need: programs that hold the box, kinds of operations."""
_CHOICES: Final[Mapping[str, frozenset[str]]] = {
    name: frozenset(re.findall(r"[a-z]+", text))
    for name, text in {
        "alerts": "list show ack silence unsilence test outbox",
        "baseline": "show accept reset",
        "config": "show validate path",
        "key": "add ls rm",
        "mark": "live standby retired",
        "profile": "new validate lint render import rm",
        "target": "add ls rm test qr heartbeat",
        "token": "add ls rm",
        "window": "add ls rm",
    }.items()
}
_VALUES: Final[Mapping[str, tuple[str, ...]]] = {
    "self.noun": ("key", "token"),
    "kind": ("key", "token"),
    "verb": ("start", "stop"),
    "action": ("accept", "reset"),
    "ends": ("cancel", f"stop {EXAMPLE}"),
    "what": (f"show {EXAMPLE}",),
    "theirs": (),
    "__version__": (),
    "document.version": (),
    "document['version']": (),
    "arguments.action": ("test",),
    "named": (f" {EXAMPLE}",),
    "escaped(verb)": (),
    "'|'.join(self.printed_by)": (),
    "version": (),
    "text": (),
}
"""Values of what is filled in where a verb or an action stands; none: it is no command."""
_NAMELESS: Final = re.compile(
    r"(?:key|token|window) (?:add|rm)|target (?:add|rm|qr)|alerts (?:show|ack|silence|unsilence)"
)
"""Actions without the NAME that they want, which the verb finds and not the parser."""
_EXTERNAL: Final[Mapping[str, str]] = {
    "systemctl": r"(?:status|start|stop|restart|reset-failed|show|disable --now)(?: -p \w+)?(?: [\w.@-]+)*|reboot|list-jobs",
    "journalctl": r"--update-catalog(?: \w+)?|(?:-[ugkxb](?: [\w.@-]+)?|-n \d+| |-o json|--since \S+)+",
    "usermod": r"-aG [\w,-]+ [\w-]+",
    "nvidia-smi": r"-q(?: -d [A-Z_,]+)?|--gpu-reset -i \w+|--format=csv --query-gpu=[\w.,]+",
}
"""Forms of commands of other programs."""


def filled(text: str) -> Iterator[str]:
    """Yield a text with examples in place of what is filled in, once for each value of a verb."""
    found = _PLACE.search(text)
    while found is not None and not (values := _VALUES.get(found[0].strip("{}"), (EXAMPLE,)))[1:]:
        text = text.replace(found[0], values[0] if values else "(none)")
        found = _PLACE.search(text)
    if found is None:
        yield text
        return
    for value in _VALUES[found[0].strip("{}")]:
        yield from filled(text.replace(found[0], value))


def suggestions(text: str) -> Iterator[str]:
    """Yield the commands in a text, each up to where prose goes on."""
    added = EXAMPLE if re.search(rf"{PROGRAM} \w.* $", text) else ""  # a name is put behind it
    for whole in filled(f"{text}{added}"):
        for found in _COMMAND.finditer(whole):
            words = [found[1]]
            for word in whole[found.end() :].partition("\n")[0].split(" "):
                bare = _END.split(word)[0]
                first = bare.partition("|")[0]
                if not (len(words) == 1 or _goes_on(words, first)):
                    break
                words.append(first)
                if bare != word or not bare:
                    break
            yield " ".join(words).strip()


def _goes_on(words: list[str], word: str) -> bool:
    if words[0] != PROGRAM:
        return bool(
            re.fullmatch(
                rf"-\S+|[\d.]+|[A-Z_,]{{2,}}|appliance-\S+|operators|\S*{EXAMPLE}\S*", word
            )
        ) or (words[-1].startswith("-") and words[-1] != "-x" and word != "")
    return (
        bool(_ARGUMENT.fullmatch(word))
        or (len(words) == 2 and word in _CHOICES.get(words[1], ()))
        or (words[1] == "mark" and word in _CHOICES["mark"])
    )


def fault(command: str) -> str:
    """Return what is wrong with a command; empty: a person could type it."""
    program, _, rest = command.partition(" ")
    if program != PROGRAM:
        rest = rest.replace("NAME", EXAMPLE)
        units = re.findall(r"appliance-[\w.-]+", rest)
        strange = [unit for unit in units if program != "usermod" and not is_unit(unit)]
        if rest.partition(" ")[0] in _PROSE:
            return ""
        return (
            ""
            if re.fullmatch(_EXTERNAL[program], rest) and not strange
            else f"{command}: no known form"
        )
    verb = rest.partition(" ")[0]
    if rest in _MENTIONS or verb in _PROSE or not re.fullmatch(r"--help|[A-Za-z]+", verb):
        return ""
    if _NAMELESS.fullmatch(rest):
        return f"{command}: without a NAME"
    if verb not in {name for one in VERBS for name in (one.name, *one.aliases)} | {
        "VERB",
        "--help",
    }:
        return f"{command}: no such verb"
    words = rest.replace("VERB", "switch").split()
    return next(
        parse_faults([EXAMPLE if re.fullmatch("NAME|ID", word) else word for word in words]), ""
    )


def texts(file: Path) -> Iterator[str]:
    """Yield the texts of a source; of a Python module its strings, without docstrings."""
    source = file.read_text("utf-8")
    if file.suffix == ".sh":
        said = (found[2] for found in re.finditer(r"\b(?:say|die) (['\"])(.*?)\1", source))
        yield from (re.sub(r"appliance \$\S+", PROGRAM, text) for text in said)
        return
    if file.suffix != ".py":
        yield source.replace("\n", " ")
        return
    tree = ast.parse(source)
    skipped = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            skipped |= {id(part) for part in node.values}
            yield "".join(_part(part, file) for part in node.values)
        elif isinstance(node, ast.Call) and getattr(node.func, "id", "") == "need_root":
            inner = node.args[0]
            assert isinstance(inner, ast.JoinedStr)
            yield "".join([f"sudo {PROGRAM} ", *(_part(part, file) for part in inner.values)])
        elif (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and id(node) not in skipped
        ):
            yield node.value


def _part(part: ast.expr, file: Path) -> str:
    """Return a part of an f-string: a constant of its module as its value."""
    if isinstance(part, ast.Constant):
        return str(part.value)
    assert isinstance(part, ast.FormattedValue)
    name = ast.unparse(part.value)
    if name.isidentifier() and name.isupper():
        module = ".".join(file.relative_to(ROOT).with_suffix("").parts)
        return str(getattr(importlib.import_module(module), name))
    return "{" + re.sub(r"[\s{}]", "", name) + "}"


@cache
def found() -> Mapping[str, frozenset[str]]:
    """Return every suggested command, with the sources that suggest it."""
    sources = [
        *(ROOT / "appliance").rglob("*.py"),
        *(ROOT / "appliance" / "web" / "page").rglob("*.html"),
        *(ROOT / "appliance" / "web" / "page").rglob("*.js"),
        *(path for path in (ROOT / "units").iterdir() if path.suffix != ".catalog"),
        *(ROOT / "profiles").glob("*.toml"),
        *(ROOT / "docs" / "monitoring").rglob("*.yml"),
        ROOT / "scripts" / "install.sh",
    ]
    commands: dict[str, set[str]] = {}
    for file in sources:
        for text in texts(file):
            for command in suggestions(text):
                commands.setdefault(command, set()).add(str(file.relative_to(ROOT)))
    return {command: frozenset(files) for command, files in commands.items()}


def test_every_command_that_a_text_suggests_can_be_typed() -> None:
    """Verbs, options and the number of arguments are those of the parser; other programs' are of a known form."""
    wrong = {fault(command): sorted(files) for command, files in found().items() if fault(command)}
    assert not wrong
    assert len(found()) > 100
