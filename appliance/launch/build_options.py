"""Options that an engine's program knows: from the text of its ``--help``, or from a Python package's sources.

Help text. An entry begins at the left with the option's names, then a hint at its value, then two blanks or
more and the description, which goes on in lines that are indented further::

    -c,    --ctx-size N                     size of the prompt context
    -fa,   --flash-attn [on|off|auto]       set Flash Attention use
    --draft, --draft-max N                  the argument has been removed. use --spec-draft-n-max

That is the format of llama.cpp (common/arg.cpp, ``common_arg::to_string``, as of November 2026); help
of Python's argparse has the names and hints in the same places.

Python packages. ``--help`` of vLLM and SGLang imports PyTorch: ten seconds and more, and where no GPU is seen
some versions fail. So nothing is run: the program's first line names the interpreter, the environment around that has
the package's metadata and sources, and the options are those that the sources declare. Engines move
these sources: those of several releases are asked for, and what is found must have the options that
every server has.

Sources. What vLLM and SGLang write (vLLM 0.33.0, SGLang 0.5.23), and what an option is in it:

``group.add_argument("--uds", "-u", …)``
    names in a call, each; with ``action=BooleanOptionalAction`` ``--no-uds``, too
``group.add_argument("--eager", **kwargs["eager"])`` in a class with a field ``eager: bool``
    the same as with ``BooleanOptionalAction``
``group.add_argument(f"--{key}", **value)`` in a class
    each field of the class and of those that inherit it
``tp_size: A[int, Arg(help=…, cli_name="--tp", aliases=["--tensor"], no_cli=False)]``
    the field, or its ``cli_name``, and the aliases; without a text or ``Arg`` it is none
``_inverse_prefixes = {"--enable-": "--disable-"}`` in an action
    every option that has ``--no-…`` and begins so has the other beginning as well

A source that this Python cannot parse is read by patterns, which find more than there is.
"""

from __future__ import annotations

import ast
import contextlib
import os
import re
from itertools import islice

from appliance.model.engine_build import EngineBuild, is_option
from appliance.system.files.regular import read_small_file
from appliance.wire.build_record import MOST_OPTIONS, MOST_VALUES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

_LISTED_NAME = re.compile(r"--?[A-Za-z][A-Za-z0-9_.-]*", re.ASCII)
_VALUE = re.compile(r"[a-z0-9][a-z0-9_.-]*", re.ASCII)
_DEEPEST_ENTRY = 8
"""Most blanks before an entry: descriptions are indented further."""
_MOST_LINE = 1000
_MOST_DESCRIPTION = 300
_REMOVED = "argument has been removed"


class HelpText:
    """Options in one text."""

    __slots__ = ("options", "removed")

    def __init__(self, text: str) -> None:
        self.options: dict[str, tuple[str, ...] | None] = {}
        """As `appliance.model.engine_build.EngineBuild` has them, as is the next."""
        self.removed: dict[str, str] = {}
        for names, hint, description in _entries(text.splitlines()):
            kept = names[: MOST_OPTIONS - len(self.options) - len(self.removed)]
            before, found, instead = description.partition(_REMOVED)
            if found and not before.strip("the "):
                self.removed.update(dict.fromkeys(kept, instead.partition("(env:")[0].strip(". ")))
            else:
                self.options.update(dict.fromkeys(kept, _values(hint)))


_Entry = tuple[list[str], str, str]


def _entries(lines: Iterable[str]) -> Iterator[_Entry]:
    """Yield names, hint at the value and description of each entry."""
    entry: _Entry | None = None
    for full_line in lines:
        line = full_line[:_MOST_LINE]
        text = line.lstrip(" ")
        begun = _begun(text) if len(line) - len(text) <= _DEEPEST_ENTRY else None
        if begun is not None:
            if entry is not None:
                yield entry
            entry = begun
        elif entry is not None and text and len(entry[2]) < _MOST_DESCRIPTION:
            entry = (entry[0], entry[1], f"{entry[2]} {text.strip()}"[:_MOST_DESCRIPTION].lstrip())
        elif not text:
            if entry is not None:
                yield entry
            entry = None
    if entry is not None:
        yield entry


def _begun(line: str) -> _Entry | None:
    """Return the entry that begins in a line; None: none does."""
    names: list[str] = []
    place = 0
    while match := _LISTED_NAME.match(line, place):
        if is_option(match[0]):
            names.append(match[0])
        place = match.end()
        if line[place : place + 1] != ",":
            break
        place += 1
        while line[place : place + 1] == " ":
            place += 1
    rest = line[place:]
    if not names or rest[:1] not in {"", " ", "="}:
        return None
    if rest.startswith("  ") or len(rest) <= 1:
        return names, "", rest.strip()
    hint, _, description = rest[1:].partition("  ")
    return names, hint, description.strip()


def _values(hint: str) -> tuple[str, ...] | None:
    """Return the values in a hint such as ``[on|off]``; empty: any value; None: no hint."""
    if not hint:
        return None
    words = hint.strip("[]{}<>()").replace("|", ",").split(",")[: MOST_VALUES + 1]
    listed = 1 < len(words) <= MOST_VALUES and all(map(_VALUE.fullmatch, words))
    return tuple(words) if listed else ()


_LITERAL = re.compile(r"""["'](--[a-z][a-z0-9-]{0,63})["']""", re.ASCII)
_FIELD = re.compile(r"^    ([a-z][a-z0-9_]{0,63}) ?:", re.ASCII | re.MULTILINE)
_DECLARED_NAME = re.compile(r"--?[A-Za-z][A-Za-z0-9_-]{0,63}", re.ASCII)
_BOOLEAN = "BooleanOptionalAction"
_MARKS = frozenset({"A", "Annotated"})
_NO = "--no-"


class DeclaredOptions:
    """Options in some sources."""

    def __init__(self, sources: Iterable[str]) -> None:
        self._found: dict[str, None] = {}
        self._switches: dict[str, None] = {}
        self._inverses: dict[str, str] = {}
        for source in sources:
            self._read(source)

    def names(self) -> Iterator[str]:
        """Yield the names, each once."""
        yield from self._found
        for name in self._switches:
            yield f"{_NO}{name.removeprefix('--')}"
            for beginning, other in self._inverses.items():
                if name.startswith(beginning):
                    yield other + name.removeprefix(beginning)

    def _read(self, source: str) -> None:
        try:
            module = ast.parse(source)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            self._add(match[1] for match in _LITERAL.finditer(source))
            self._add(map(_option, (match[1] for match in _FIELD.finditer(source))))
            return
        registering: set[str] = set()
        in_classes: set[ast.Call] = set()
        for one in module.body:
            if isinstance(one, ast.ClassDef):
                in_classes.update(self._read_class(one, registering))
        for node in ast.walk(module):
            if isinstance(node, ast.Call) and node not in in_classes:
                self._read_call(node, {})

    def _read_class(self, one: ast.ClassDef, registering: set[str]) -> Iterator[ast.Call]:
        """Read a class; yields the calls in it."""
        fields = {
            each.target.id: each.annotation
            for each in one.body
            if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name)
        }
        calls = [node for node in ast.walk(one) if isinstance(node, ast.Call)]
        bases = {base.id for base in one.bases if isinstance(base, ast.Name)}
        if bases & registering or any(_names_by_fields(call) for call in calls):
            registering.add(one.name)
            for name, annotation in fields.items():
                self._add((_option(name),), is_switch=_is_switch(annotation))
        for name, annotation in fields.items():
            self._read_marks(name, annotation)
        for call in calls:
            self._read_call(call, fields)
        for each in one.body:
            if isinstance(each, ast.Assign) and isinstance(each.value, ast.Dict):
                self._inverses |= _pairs(each.value)
        yield from calls

    def _read_call(self, call: ast.Call, fields: dict[str, ast.expr]) -> None:
        if not _adds_argument(call):
            return
        names = _texts(call.args)
        field = next((name for name in names if name.startswith("--")), "")[2:].replace("-", "_")
        takes_kwargs = any(keyword.arg is None for keyword in call.keywords)
        is_switch = takes_kwargs and field in fields and _is_switch(fields[field])
        self._add(names, is_switch=is_switch or _is_boolean(call))

    def _read_marks(self, name: str, annotation: ast.expr) -> None:
        """Read a field such as ``A[int, Arg(help="…")]``."""
        if not isinstance(annotation, ast.Subscript) or _name(annotation.value) not in _MARKS:
            return
        marks = annotation.slice.elts[1:] if isinstance(annotation.slice, ast.Tuple) else []
        for mark in marks:
            if isinstance(mark, ast.Call) and _name(mark.func) == "Arg":
                given = {keyword.arg: keyword.value for keyword in mark.keywords}
                hidden = given.get("no_cli")
                if isinstance(hidden, ast.Constant) and hidden.value:
                    return
                names = _texts([given[key] for key in ("cli_name",) if key in given])
                aliases = given.get("aliases")
                more = _texts(aliases.elts) if isinstance(aliases, (ast.List, ast.Tuple)) else []
                self._add([*(names or [_option(name)]), *more], is_switch=_is_boolean(mark))
                return
            if isinstance(mark, ast.JoinedStr) or _text(mark) is not None:
                self._add((_option(name),))
                return

    def _add(self, names: Iterable[str], *, is_switch: bool = False) -> None:
        for name in names:
            if _DECLARED_NAME.fullmatch(name):
                self._found[name] = None
                if is_switch and name.startswith("--"):
                    self._switches[name] = None


def _option(field: str) -> str:
    return f"--{field.replace('_', '-')}"


def _adds_argument(call: ast.Call) -> bool:
    return isinstance(call.func, ast.Attribute) and call.func.attr == "add_argument"


def _names_by_fields(call: ast.Call) -> bool:
    """Tell whether a call makes options of a class's fields, whose names it computes."""
    computed = (one.values[0] for one in call.args if isinstance(one, ast.JoinedStr) and one.values)
    return _adds_argument(call) and any(_text(begun) == "--" for begun in computed)


def _is_switch(annotation: ast.expr) -> bool:
    """Tell whether a field is true or false, or neither yet."""
    names = {node.id for node in ast.walk(annotation) if isinstance(node, ast.Name)}
    return "bool" in names and "str" not in names


def _is_boolean(call: ast.Call) -> bool:
    return any(one.arg == "action" and _name(one.value) == _BOOLEAN for one in call.keywords)


def _pairs(value: ast.Dict) -> dict[str, str]:
    """Return the beginnings of options by those that mean the opposite."""
    pairs = zip(map(_text, value.keys), map(_text, value.values), strict=True)
    return {a: b for a, b in pairs if a and b and a.startswith("--") and b.startswith("--")}


def _name(node: ast.expr) -> str:
    """Return the last part of a name, such as ``argparse.Action``; empty: another expression."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def _texts(nodes: Sequence[ast.expr]) -> list[str]:
    return [text for text in map(_text, nodes) if text is not None]


def _text(node: ast.expr | None) -> str | None:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


_SUFFIX = ".dist-info"
_FIRST_BYTES = 4096
_MOST_SOURCE_BYTES = 1 << 20
_MOST_SOURCES = 64
_CORE = ("--port", "--served-model-name")
"""Options that every engine of this kind has; one for its server and one for its model."""
_INTERPRETER = re.compile(rb"(?:\A#!|^'''exec' )[ \t]*\"?(/[^\s\"]+)", re.MULTILINE)
"""First line of a script, or the second where pip found the path too long for the first: its program."""


class Distribution:
    """Package of an engine in the environment of its program.

    Args:
        program: Path of a script of the package, or of the interpreter.
        name: Of the package, as its metadata's directory spells it.
        sources: Modules that declare options, as paths below the directory of packages; one that ends
            with a slash is a folder of such modules. Not every release has all of them.
    """

    def __init__(self, program: str, name: str, sources: Sequence[str]) -> None:
        self._metadata = next(_metadata(_interpreter(program), name), "")
        self._name = name
        packages = os.path.dirname(self._metadata)
        self._sources = tuple(f"{packages}/{path}" for path in sources)
        self.files = (self._metadata, *self._sources) if self._metadata else ()
        """Files that the answer depends on."""

    def build(self, asked_unix_s: float) -> EngineBuild:
        """Return version and options; never raises."""
        if not self._metadata:
            text = f"no package {self._name} in the environment of its interpreter"
            return EngineBuild(problem=text, asked_unix_s=asked_unix_s)
        from appliance.launch.build_options import DeclaredOptions  # noqa: PLC0415

        directory = os.path.basename(self._metadata)
        version = directory.removesuffix(_SUFFIX).partition("-")[2]
        names = islice(DeclaredOptions(self._texts()).names(), MOST_OPTIONS)
        options: dict[str, tuple[str, ...] | None] = dict.fromkeys(names, ())
        missing = [option for option in _CORE if option not in options]
        if missing:
            problem = (
                f"the sources of {self._name} {version} do not declare {' and '.join(missing)}"
            )
            return EngineBuild(version=version, problem=problem, asked_unix_s=asked_unix_s)
        return EngineBuild(
            version=version, options=options, is_complete=False, asked_unix_s=asked_unix_s
        )

    def _texts(self) -> Iterator[str]:
        """Yield the sources that are there."""
        paths = (path for source in self._sources for path in _modules(source))
        for path in islice(paths, _MOST_SOURCES):
            with contextlib.suppress(OSError):
                content = read_small_file(path, _MOST_SOURCE_BYTES, follow_links=True)
                yield content.decode(errors="replace")


def _modules(source: str) -> Iterator[str]:
    """Yield the modules that a source names."""
    if not source.endswith("/"):
        yield source
        return
    for name in _names(source, ""):
        if name.endswith(".py"):
            yield source + name


def _interpreter(program: str) -> str:
    """Return the path of the Python that runs a script, or `program` itself; empty: not known."""
    if _is_python(program):
        return program
    try:
        descriptor = os.open(program, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        text = os.read(descriptor, _FIRST_BYTES)
    except OSError:
        return ""
    finally:
        os.close(descriptor)
    paths = (os.fsdecode(match[1]) for match in _INTERPRETER.finditer(text))
    return next((path for path in paths if _is_python(path)), "")


def _is_python(path: str) -> bool:
    return os.path.basename(path).startswith("python")


def _metadata(interpreter: str, name: str) -> Iterator[str]:
    """Yield the directories of the package's metadata in the environment of an interpreter."""
    # Not the target of a link: the interpreter of a virtual environment is one.
    prefix = os.path.dirname(os.path.dirname(interpreter)) if interpreter else ""
    for library in ("lib", "lib64", "local/lib"):
        for version in _names(f"{prefix}/{library}", "python3"):
            for packages in ("site-packages", "dist-packages"):
                directory = f"{prefix}/{library}/{version}/{packages}"
                for found in _names(directory, f"{name}-"):
                    if found.endswith(_SUFFIX):
                        yield f"{directory}/{found}"


def _names(directory: str, beginning: str) -> list[str]:
    try:
        return sorted(n for n in os.listdir(directory) if n.startswith(beginning))
    except OSError:
        return []
