"""Lexer of shell text: commands, words and what they refer to. It expands nothing and runs nothing.

As much of POSIX's shell language (and of bash's arrays) as scripts that start a server use. What runs
another command, ``$(…)``, backticks, ``<(…)`` and ``$((…))``, stays one opaque part (except ``$(pwd)``). Linear in the length
of the text; substitutions may nest 32 deep.
"""

from collections.abc import Iterator
from typing import Final

from appliance.profiles.foreign.server_command import MAX_CHARACTERS, ImportFaultError
from appliance.profiles.foreign.shell_syntax import (
    Assignment,
    Literal,
    Opaque,
    Reference,
    SimpleCommand,
    Word,
    WordPart,
)

_BLANK: Final = " \t\r"
_ENDS: Final = ("&&", "||", ";;", "|&", ";", "|", "&", "\n")
_REDIRECTIONS: Final = "<>"
KEYWORDS: Final = ("if", "elif", "while", "until", "then", "else", "do", "!", "{", "}", "time")
"""Words after which a command begins."""
EXPORTING: Final = ("export", "declare", "typeset", "readonly", "local")
"""Commands whose arguments are assignments."""
_BEFORE_ASSIGNMENTS: Final = (*KEYWORDS, *EXPORTING, "-a", "-x", "-r", "-g", "-i")
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
