"""Reader of shell text: its commands, and what their words are once variables are replaced.

The lexer makes simple commands, assignments and words. `Variables` holds the literals that the configuration
itself assigns: what it does not assign is unknown unless the reference names a default, and no variable of this
process counts. `read_script` puts both together. Nothing is run.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from appliance.profiles.foreign.server_command import (
    MAX_CHARACTERS,
    Argument,
    DispositionKind,
    ImportFaultError,
    ServerCommand,
    setting,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Literal:
    """Text that stands for itself."""

    text: str
    quoted: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """Reference to a variable: ``$NAME``, ``${NAME}``, ``${NAME:-default}``, ``${NAME[@]}``."""

    name: str
    quoted: bool
    is_list: bool = False
    """Whether all elements of an array are meant."""
    default: "Word | None" = None
    """Value where the variable is not set or empty; None: none is given."""
    text: str
    """The reference as it was written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Opaque:
    """Part whose value is known only when a shell runs it."""

    text: str
    reason: str


WordPart = Literal | Reference | Opaque


@dataclass(frozen=True, slots=True, kw_only=True)
class Word:
    """Word of a command, as it was written."""

    parts: tuple[WordPart, ...]

    def plain(self) -> str | None:
        """Return the word's text; None: it refers to something."""
        texts = [part.text for part in self.parts if isinstance(part, Literal)]
        return "".join(texts) if len(texts) == len(self.parts) else None

    def is_keyword(self, text: str) -> bool:
        """Tell whether the word is `text`, without quotes."""
        return self.parts == (Literal(text=text, quoted=False),)


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """Assignment before a command or instead of one."""

    name: str
    appends: bool
    value: Word | tuple[Word, ...]
    """Value; several words for an array."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SimpleCommand:
    """Command without the operators around it."""

    line: int
    """Line on which the command begins, from 1."""
    assignments: tuple[Assignment, ...]
    words: tuple[Word, ...]
    redirections: tuple[str, ...]
    end: str
    """Operator that ends the command, such as ``|`` or ``&&``; a line's end is ``\\n``."""


_BLANK: Final = " \t\r"
_ENDS: Final = ("&&", "||", ";;", "|&", ";", "|", "&", "\n")
_REDIRECTIONS: Final = "<>"
_KEYWORDS: Final = ("if", "elif", "while", "until", "then", "else", "do", "!", "{", "}", "time")
"""Words after which a command begins."""
_EXPORTING: Final = ("export", "declare", "typeset", "readonly", "local")
"""Commands whose arguments are assignments."""
_BEFORE_ASSIGNMENTS: Final = (*_KEYWORDS, *_EXPORTING, "-a", "-x", "-r", "-g", "-i")
_NAME_FIRST: Final = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_")
_NAME_LATER: Final = _NAME_FIRST | frozenset("0123456789")
_SPECIAL: Final = frozenset("0123456789@*#?$!-")
_MOST_DEPTH: Final = 32
_PWD: Final = ("$(pwd)", "`pwd`")
_ESCAPED_IN_QUOTES: Final = frozenset('$`"\\')


def commands_of(text: str) -> tuple[SimpleCommand, ...]:
    """Return the commands in a shell text, in its order, whatever would make them run.

    Raises:
        ImportFaultError: the text is too long, nests too deep, or a quote is not closed.
    """
    if len(text) > MAX_CHARACTERS:
        raise ImportFaultError(f"has more than {MAX_CHARACTERS >> 10} KiB of shell text")
    return _Lexer(text.replace("\\\r\n", "\\\n")).commands()


def template_of(text: str) -> Word:
    """Return the parts of a value in which only ``$NAME``, ``${NAME:-default}`` and ``$$`` are special.

    Raises:
        ImportFaultError: the text is too long, nests too deep, or a brace is not closed.
    """
    if len(text) > MAX_CHARACTERS:
        raise ImportFaultError(f"has a value of more than {MAX_CHARACTERS >> 10} KiB")
    return _Lexer(text).template()


class _Lexer:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._line = 1
        self._depth = 0
        self._here_documents: list[tuple[str, bool]] = []
        """Delimiters of here-documents that begin after this line, and whether tabs are stripped."""

    def commands(self) -> tuple[SimpleCommand, ...]:
        found = []
        while self._at < len(self._text):
            command = self._command()
            if command is not None:
                found.append(command)
        return tuple(found)

    def template(self) -> Word:
        parts: list[WordPart] = []
        while self._at < len(self._text):
            end = self._text.find("$", self._at)
            end = len(self._text) if end < 0 else end
            if end > self._at:
                parts.append(Literal(text=self._step(end - self._at), quoted=True))
            elif self._text.startswith("$$", self._at):
                self._step(2)
                parts.append(Literal(text="$", quoted=True))
            else:
                parts.append(self._expansion(quoted=True))
        return Word(parts=tuple(parts))

    def _command(self) -> SimpleCommand | None:
        """Read up to the end of one command; None: there is nothing in it."""
        assignments: list[Assignment] = []
        words: list[Word] = []
        redirections: list[str] = []
        self._skip_blank()
        line = self._line
        may_assign = True
        end = "\n"
        while self._at < len(self._text):
            if self._is_redirection():
                redirections.append(self._redirection())
                self._skip_blank()
                continue
            operator = next((o for o in _ENDS if self._text.startswith(o, self._at)), None)
            char = self._text[self._at]
            if operator is not None or char in "()":
                end = operator or char
                self._step(len(end))
                break
            if char == "#":
                self._skip_line()
            elif may_assign and (assignment := self._assignment()) is not None:
                assignments.append(assignment)
            else:
                words.append(self._word())
                may_assign &= any(map(words[-1].is_keyword, _BEFORE_ASSIGNMENTS))
            self._skip_blank()
        if end == "\n":
            self._skip_here_documents()
        if not assignments and not words:
            return None
        return SimpleCommand(
            line=line,
            assignments=tuple(assignments),
            words=tuple(words),
            redirections=tuple(redirections),
            end=end,
        )

    def _step(self, count: int) -> str:
        passed = self._text[self._at : self._at + count]
        self._line += passed.count("\n")
        self._at += count
        return passed

    def _skip_blank(self) -> None:
        while self._at < len(self._text):
            if self._text[self._at] in _BLANK:
                self._at += 1
            elif self._text.startswith("\\\n", self._at):
                self._step(2)
            else:
                return

    def _skip_line(self) -> None:
        end = self._text.find("\n", self._at)
        self._at = len(self._text) if end < 0 else end

    def _is_redirection(self) -> bool:
        """Tell whether ``>``, ``2>``, ``&>`` or the like begins here; ``<(`` is a word."""
        at = self._at
        while at < len(self._text) and at < self._at + 2 and self._text[at] in "0123456789&":
            at += 1
        if at >= len(self._text) or self._text[at] not in _REDIRECTIONS:
            return False
        return self._text[at + 1 : at + 2] != "("

    def _redirection(self) -> str:
        start = self._at
        while self._at < len(self._text) and self._text[self._at] in "0123456789&":
            self._at += 1
        operator = ""
        while self._at < len(self._text) and self._text[self._at] in "<>&-|":
            operator += self._step(1)
        self._skip_blank()
        target = self._word() if not self._at_end_of_word() else Word(parts=())
        if operator in {"<<", "<<-"}:
            self._here_documents.append((target.plain() or "", operator.endswith("-")))
        return self._text[start : self._at]

    def _skip_here_documents(self) -> None:
        for delimiter, strips in self._here_documents:
            while self._at < len(self._text):
                end = self._text.find("\n", self._at)
                stop = len(self._text) if end < 0 else end
                row = self._text[self._at : stop]
                self._step(stop + 1 - self._at)
                if (row.lstrip("\t") if strips else row) == delimiter:
                    break
        self._here_documents.clear()

    def _assignment(self) -> Assignment | None:
        """Read ``NAME=value``, ``NAME+=value`` or ``NAME=(…)``; None: another word begins here."""
        at = self._at
        if self._text[at] not in _NAME_FIRST:
            return None
        while at < len(self._text) and self._text[at] in _NAME_LATER:
            at += 1
        name = self._text[self._at : at]
        appends = self._text.startswith("+=", at)
        at += 1 if appends else 0
        if not self._text.startswith("=", at):
            return None
        self._at = at + 1
        if not self._text.startswith("(", self._at):
            return Assignment(name=name, appends=appends, value=self._word())
        self._step(1)
        return Assignment(name=name, appends=appends, value=tuple(self._array(name)))

    def _array(self, name: str) -> Iterator[Word]:
        """Yield the words of an array up to its closing bracket."""
        while True:
            self._skip_blank()
            if self._at >= len(self._text):
                raise ImportFaultError(f"line {self._line}: the array {name} is not closed")
            char = self._text[self._at]
            if char == "#":
                self._skip_line()
            elif not self._at_end_of_word():
                yield self._word()
            elif self._step(1) == ")":
                return

    def _at_end_of_word(self) -> bool:
        if self._at >= len(self._text):
            return True
        char = self._text[self._at]
        if char in _REDIRECTIONS:
            return self._text[self._at + 1 : self._at + 2] != "("
        return char in _BLANK or char in "\n;|&()"

    def _word(self) -> Word:
        parts: list[WordPart] = []
        while not self._at_end_of_word():
            char = self._text[self._at]
            if char == "'":
                parts.append(Literal(text=self._until("'"), quoted=True))
            elif char == '"':
                self._step(1)
                parts += self._double_quoted()
            elif char == "\\":
                escaped = self._step(2)[1:]
                if escaped != "\n":
                    parts.append(Literal(text=escaped, quoted=True))
            elif char in "$`" or char in _REDIRECTIONS:
                parts.append(self._expansion(quoted=False))
            else:
                parts.append(Literal(text=self._bare(), quoted=False))
        return Word(parts=tuple(parts))

    def _bare(self) -> str:
        start = self._at
        while not self._at_end_of_word() and self._text[self._at] not in "'\"\\$`":
            self._at += 1
        return self._text[start : self._at]

    def _until(self, quote: str) -> str:
        """Read a quoted text that has no escapes, after its first quote."""
        line = self._line
        end = self._text.find(quote, self._at + 1)
        if end < 0:
            raise ImportFaultError(f"line {line}: a quote ({quote}) is not closed")
        return self._step(end + 1 - self._at)[1:-1]

    def _double_quoted(self) -> list[WordPart]:
        line = self._line
        parts: list[WordPart] = []
        text: list[str] = []
        while self._at < len(self._text):
            char = self._text[self._at]
            if char == '"':
                self._step(1)
                return [*parts, Literal(text="".join(text), quoted=True)]
            if char == "\\":
                escaped = self._step(2)[1:]
                if escaped != "\n":
                    text.append(escaped if escaped in _ESCAPED_IN_QUOTES else f"\\{escaped}")
            elif char in "$`":
                parts.append(Literal(text="".join(text), quoted=True))
                text.clear()
                parts.append(self._expansion(quoted=True))
            else:
                text.append(self._step(1))
        raise ImportFaultError(f'line {line}: a quote (") is not closed')

    def _expansion(self, *, quoted: bool) -> WordPart:
        """Read what begins with ``$``, a backtick, ``<(`` or ``>(``."""
        start = self._at
        char = self._text[start]
        following = self._text[start + 1 : start + 2]
        if char == "`":
            self._until("`")
            return self._opaque(start)
        if char in _REDIRECTIONS or following == "(":
            self._step(2)
            self._skip_nested("(", ")")
            return self._opaque(start)
        if following == "{":
            self._step(2)
            return self._braced(start, quoted=quoted)
        if following in {"'", '"'} and not quoted:
            self._step(1)  # $'…' and $"…": read as plain quotes
            return Literal(text="", quoted=True)
        self._step(1)
        name = self._name()
        if not name:
            return Literal(text="$", quoted=quoted)
        text = self._text[start : self._at]
        return Reference(name=name, quoted=quoted, is_list=name in {"@", "*"}, text=text)

    def _opaque(self, start: int) -> WordPart:
        text = self._text[start : self._at]
        if text in _PWD:
            return Reference(name="PWD", quoted=True, text=text)
        return Opaque(text=text, reason="a shell would have to run a command for its value")

    def _name(self) -> str:
        if self._at < len(self._text) and self._text[self._at] in _SPECIAL:
            return self._step(1)
        start = self._at
        while self._at < len(self._text) and self._text[self._at] in _NAME_LATER:
            self._at += 1
        return self._text[start : self._at]

    def _braced(self, start: int, *, quoted: bool) -> Reference | Opaque:
        """Read ``${…}`` after its brace; what changes the value stays opaque."""
        name = self._name()
        is_list = False
        for index in ("[@]", "[*]"):
            if name and self._text.startswith(index, self._at):
                self._step(len(index))
                is_list = True
        default: Word | None = None
        for operator in (":-", "-", ":=", "="):
            if name and self._text.startswith(operator, self._at):
                self._step(len(operator))
                default = self._default(quoted=quoted)
                break
        if name and self._text.startswith("}", self._at):
            self._step(1)
            return Reference(
                name=name,
                quoted=quoted,
                is_list=is_list or name in {"@", "*"},
                default=default,
                text=self._text[start : self._at],
            )
        self._skip_nested("{", "}")
        text = self._text[start : self._at]
        return Opaque(text=text, reason="only a shell can tell its value")

    def _default(self, *, quoted: bool) -> Word:
        """Read the default of a reference up to its closing brace, which stays."""
        self._depth += 1
        if self._depth > _MOST_DEPTH:
            raise ImportFaultError(f"line {self._line}: nests deeper than {_MOST_DEPTH} levels")
        parts: list[WordPart] = []
        while self._at < len(self._text) and self._text[self._at] != "}":
            char = self._text[self._at]
            if char == '"':
                self._step(1)
                parts += self._double_quoted()
            elif char == "'" and not quoted:
                parts.append(Literal(text=self._until("'"), quoted=True))
            elif char in "$`":
                parts.append(self._expansion(quoted=quoted))
            elif char == "\\":
                parts.append(Literal(text=self._step(2)[1:], quoted=True))
            else:
                parts.append(Literal(text=self._step(1), quoted=quoted))
        self._depth -= 1
        return Word(parts=tuple(parts))

    def _skip_nested(self, opening: str, closing: str) -> None:
        """Skip up to the bracket that closes one already passed, quotes respected."""
        line, open_count = self._line, 1
        while self._at < len(self._text):
            char = self._text[self._at]
            if char == "'":
                self._until("'")
                continue
            self._step(2 if char == "\\" else 1)
            open_count += {opening: 1, closing: -1}.get(char, 0)
            if open_count == 0:
                return
        raise ImportFaultError(f'line {line}: "{opening}" is not closed')


_POSITIONAL: Final = frozenset("0123456789@*#")
_PLACES: Final = {"HOME": "~", "PWD": "."}
"""Variables that every shell has, as paths that are located later."""


class Variables:
    """Variables as far as a configuration has been read; a later assignment replaces an earlier one.

    Args:
        values: Variables that are set from the beginning.
    """

    def __init__(self, values: Mapping[str, Argument] | None = None) -> None:
        places = {name: Argument(text=text) for name, text in _PLACES.items()}
        self._values: dict[str, tuple[Argument, ...]] = {
            name: (value,) for name, value in {**places, **(values or {})}.items()
        }
        self._made_characters = 0

    def assign(self, assignment: Assignment) -> None:
        """Record an assignment; a value that changes is noted where it is used."""
        given = assignment.value
        value: tuple[Argument, ...]
        value = (self.joined(given),) if isinstance(given, Word) else tuple(self.expand(given))
        before = self._values.get(assignment.name)
        if assignment.appends and before is not None:
            value = _appended(before, value, is_list=not isinstance(given, Word))
        elif before is not None and before != value and len(value) == 1:
            note = f"{assignment.name} is assigned more than once: the last value was taken"
            value = (_noted(value[0], note),)
        self._values[assignment.name] = value

    def snapshot(self, names: Iterable[str]) -> dict[str, Argument]:
        """Return variables that have one value, of those with these names."""
        return {n: self._values[n][0] for n in names if len(self._values.get(n, ())) == 1}

    def expand(self, words: Iterable[Word]) -> Iterator[Argument]:
        """Yield the arguments that words make: a list or an unquoted value may make several."""
        for word in words:
            yield from self._fields(word)

    def joined(self, word: Word) -> Argument:
        """Return the one argument that a word makes where none is split."""
        return _join(list(self._pieces(word.parts)))

    def _fields(self, word: Word) -> Iterator[Argument]:
        current: list[Argument] = []
        is_field = False
        for part in word.parts:
            if not isinstance(part, Reference) or (part.quoted and not part.is_list):
                current += self._pieces((part,))
                is_field = True
                continue
            values = self._of(part)
            if not part.quoted:
                values = [piece for value in values for piece in _split(value)]
            for place, value in enumerate(values):
                if place:
                    yield _join(current)
                    current = []
                current.append(value)
                is_field = True
        if is_field:
            yield _join(current)

    def _pieces(self, parts: Iterable[WordPart]) -> Iterator[Argument]:
        for part in parts:
            if isinstance(part, Literal):
                yield self._counted(Argument(text=part.text))
            elif isinstance(part, Opaque):
                note = f"{part.text}: {part.reason}"
                yield Argument(text=part.text, is_known=False, note=note)
            else:
                yield _join(self._of(part), " ")

    def _of(self, reference: Reference) -> list[Argument]:
        """Return the values that a reference stands for."""
        values = self._values.get(reference.name)
        if values is not None and (reference.default is None or any(v.text for v in values)):
            used = values if reference.is_list else values[:1]
            return [self._counted(value) for value in used]
        if reference.default is not None:
            found = _join(list(self._pieces(reference.default.parts)))
            if not found.is_known or not found.text:
                return [found]
            return [_noted(found, f"{reference.name} is not set here: its default was taken")]
        if reference.name in _POSITIONAL:
            note = f"{reference.text}: what the script is started with is not known"
        else:
            note = f"{reference.text}: the file does not set {reference.name}"
        return [Argument(text=reference.text, is_known=False, note=note)]

    def _counted(self, value: Argument) -> Argument:
        """Return `value`; the text that variables make is bounded as a whole."""
        self._made_characters += len(value.text) + 1
        if self._made_characters > MAX_CHARACTERS:
            raise ImportFaultError(
                f"its variables make more than {MAX_CHARACTERS >> 10} KiB of text"
            )
        return value


def _appended(
    before: tuple[Argument, ...], more: tuple[Argument, ...], *, is_list: bool
) -> tuple[Argument, ...]:
    if is_list:
        return (*before, *more)
    return (*before[:-1], _join([*before[-1:], *more]))


def _noted(value: Argument, note: str) -> Argument:
    notes = [value.note, note] if value.note and note not in value.note else [note]
    return Argument(text=value.text, is_known=value.is_known, note="; ".join(notes))


def _split(value: Argument) -> list[Argument]:
    if not value.is_known:
        return [value]
    return [Argument(text=text, note=value.note) for text in value.text.split()]


def _join(pieces: list[Argument], between: str = "") -> Argument:
    """Return the argument that several make together: unknown if one of them is."""
    if len(pieces) == 1:
        return pieces[0]
    notes = dict.fromkeys(piece.note for piece in pieces if piece.note)
    return Argument(
        text=between.join(piece.text for piece in pieces),
        is_known=all(piece.is_known for piece in pieces),
        note="; ".join(notes),
    )


def interpolated(text: str, variables: Variables) -> Argument:
    """Return a value of a compose file, in which ``$NAME`` and ``${NAME:-default}`` are replaced.

    ``$$`` is a dollar sign; nothing else is special. Raises `ImportFaultError`.
    """
    return variables.joined(template_of(text))


_MOST_EXPORTED: Final = 256
_MOST_DIRECTORY: Final = 4096
_NO_COMMANDS: Final = frozenset({"for", "case", "esac", "fi", "done", "in", "function", "select"})
_LATER: Final = {
    "|": "its output goes to a pipe: the unit's goes to the journal",
    "|&": "its output goes to a pipe: the unit's goes to the journal",
    "&": "it runs in the background: the unit does that",
}


def read_script(text: str, base: ServerCommand) -> Iterator[ServerCommand]:
    """Yield the commands in a shell text, each with the variables that are exported to it.

    Args:
        text: A script, or a command line of any length.
        base: What surrounds them: variables, mounts, a directory.

    Raises:
        ImportFaultError: the text is too long, nests too deep, or a quote is not closed.
    """
    script = _Script(base)
    for command in commands_of(text):
        yield from script.read(command)


class _Script:
    def __init__(self, base: ServerCommand) -> None:
        self._base = base
        self._variables = Variables(base.environment)
        self._exported = dict.fromkeys(base.environment)
        self._directory = base.directory

    def read(self, command: SimpleCommand) -> Iterator[ServerCommand]:
        words = _without_keywords(command.words)
        name = words[0].plain() if words else ""
        if not words or name in _EXPORTING:
            for assignment in command.assignments:
                self._variables.assign(assignment)
            if words and name != "local":
                self._export(command, words)
        elif name == "cd" and len(words) > 1:
            self._change_directory(words[-1])
        elif name not in _NO_COMMANDS:
            yield self._command(command, words)

    def _export(self, command: SimpleCommand, words: tuple[Word, ...]) -> None:
        named = [argument.text for argument in self._variables.expand(words[1:])]
        named += [assignment.name for assignment in command.assignments]
        self._exported |= dict.fromkeys(name for name in named if not name.startswith("-"))
        if len(self._exported) > _MOST_EXPORTED:
            raise ImportFaultError(f"exports more than {_MOST_EXPORTED} variables")

    def _change_directory(self, word: Word) -> None:
        target = self._variables.joined(word)
        if not target.is_known or len(self._directory or "") > _MOST_DIRECTORY:
            self._directory = None
        elif target.text.startswith(("/", "~")):
            self._directory = target.text
        elif self._directory is not None:
            self._directory = f"{self._directory}/{target.text}"

    def _command(self, command: SimpleCommand, words: tuple[Word, ...]) -> ServerCommand:
        before: dict[str, Argument] = {}
        for assignment in command.assignments:
            if isinstance(assignment.value, Word):
                before[assignment.name] = self._variables.joined(assignment.value)
        left_out = [
            setting(redirection, DispositionKind.DROPPED, "the unit's output goes to the journal")
            for redirection in command.redirections
        ]
        if reason := _LATER.get(command.end):
            left_out.append(setting(command.end, DispositionKind.CHANGED, reason))
        return replace(
            self._base,
            origin=self._base.origin or f"line {command.line}",
            argv=tuple(self._variables.expand(words)),
            environment=self._variables.snapshot(self._exported) | before,
            directory=self._directory,
            dispositions=(*self._base.dispositions, *left_out),
        )


def _without_keywords(words: tuple[Word, ...]) -> tuple[Word, ...]:
    """Return the words of a command after ``if``, ``then`` and the like."""
    for place, word in enumerate(words):
        if not any(word.is_keyword(keyword) for keyword in _KEYWORDS):
            return words[place:]
    return ()
