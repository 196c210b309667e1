"""Unit file text: words quoted by systemd's rules, sections, and the sealed header.

Sources: systemd.syntax(7) for quoting, systemd.service(5) "Command lines" for ``$``,
systemd.unit(5) "Specifiers" for ``%``.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from typing import Final

from appliance.model.errors import ProfileError

_PLAIN_WORD: Final = re.compile(r"[A-Za-z0-9_@%$+=:,./~^-]+\Z")
"""Pattern of words that need no quotes."""
_NAMED_ESCAPES: Final = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "\r": "\\r"}
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")
_SURROGATE: Final = re.compile(r"[\ud800-\udfff]")
"""Half characters, as Python reads file names that are not UTF-8."""
_ENVIRONMENT_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_SEAL: Final = " sha256 of all that follows: "
_HEX_LENGTH: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """Section and its assignments, in order. A key may occur more than once."""

    name: str
    entries: tuple[tuple[str, str], ...]

    def values(self, key: str) -> tuple[str, ...]:
        """Return every value assigned to `key`, in order."""
        return tuple(value for k, value in self.entries if k == key)


def quoted(text: str) -> str:
    r"""Return `text` as one word; quotes only where needed.

    Only C escapes that every systemd since 219 reads are used: ``\\ \" \n \t \r \xNN``.

    Raises:
        ProfileError: `text` cannot be written to a unit file (NUL, or not encodable).
    """
    _raise_for(word_fault(text))
    if _PLAIN_WORD.match(text):
        return text
    return '"' + "".join(_escaped(c) for c in text) + '"'


def _escaped(char: str) -> str:
    if named := _NAMED_ESCAPES.get(char):
        return named
    return f"\\x{ord(char):02x}" if _CONTROL.match(char) else char


def word_fault(text: str) -> str | None:
    """Return why `text` cannot be a word of a unit file; None: it can."""
    if "\0" in text:
        return f"{text!r} contains a NUL character: remove it"
    if not text.isascii() and _SURROGATE.search(text):
        return f"{text!r} is not valid UTF-8: write it again"
    return None


def environment_fault(name: str, value: str) -> str | None:
    """Return why systemd would ignore an assignment of Environment=; None: it takes it."""
    if not _ENVIRONMENT_NAME.match(name):
        return f'"{name}" is not the name of an environment variable: rename it'
    if _CONTROL.search(value.replace("\t", "").replace("\n", "")):
        return f"the environment variable {name} contains a control character"
    return word_fault(f"{name}={value}")


def path_fault(path: str) -> str | None:
    """Return why `path` cannot be in a list of absolute paths; None: it can."""
    if not path.startswith("/") or _CONTROL.search(path):
        return f"{path!r} is not an absolute path that a unit file can hold"
    return word_fault(path)


def _raise_for(fault: str | None) -> None:
    if fault is not None:
        raise ProfileError(fault)


def words_of(value: str) -> tuple[str, ...]:
    """Return the words in `value`, unquoted: what `quoted` wrote, and what people type by hand.

    Specifiers and variables are left as they are.

    Raises:
        ValueError: a quote is not closed.
    """
    words: list[str] = []
    position = 0
    while match := _WORD.match(value, position):
        words.append("".join(_unquoted(part) for part in _PART.findall(match.group(1))))
        position = match.end()
    if value[position:].strip():
        raise ValueError(f"a quote is not closed: {value[position:].strip()}")
    return tuple(words)


_PART: Final = re.compile(r"""("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|(?:[^\s"'\\]|\\.)++)""")
# Possessive: giving back characters finds nothing new, and takes exponential time.
_WORD: Final = re.compile(rf"\s*({_PART.pattern}++)(?=\s|\Z)")
_ESCAPE: Final = re.compile(r"\\(x[0-9a-fA-F]{2}|.)")
_MEANINGS: Final = {"n": "\n", "t": "\t", "r": "\r", "s": " "}


def _unquoted(part: str) -> str:
    inner = part[1:-1] if part[0] in "\"'" else part
    return _ESCAPE.sub(_meaning, inner)


def _meaning(match: re.Match[str]) -> str:
    code = match.group(1)
    if len(code) > 1:
        return chr(int(code[1:], 16))
    return _MEANINGS.get(code, code)


@lru_cache(maxsize=4096)  # of hundreds of profiles each names all the others
def command_word(text: str) -> str:
    """Return `text` as one argument in ExecStart= and its kin: never expanded, never split."""
    return quoted(text.replace("%", "%%").replace("$", "$$"))


def command_line(argv: Iterable[str]) -> str:
    """Return `argv` as the value of ExecStart= and its kin; the program must be a plain path."""
    return " ".join(command_word(word) for word in argv)


def environment_word(name: str, value: str) -> str:
    """Return one assignment for Environment=, where ``$`` means nothing and ``%`` does.

    Raises:
        ProfileError: systemd would ignore the assignment, silently for the engine.
    """
    _raise_for(environment_fault(name, value))
    return quoted(f"{name}={value}".replace("%", "%%"))


def path_word(path: str, prefix: str = "") -> str:
    """Return an absolute path as one word of a list; `prefix` is systemd's own, such as ``-``.

    Raises:
        ProfileError: the path is relative or contains a control character.
    """
    _raise_for(path_fault(path))
    word = quoted(prefix + path.replace("%", "%%"))
    # Outside quotes a colon separates the two sides of a bind mount.
    return f'"{word}"' if ":" in word and not word.startswith('"') else word


def plain_line(text: str) -> str:
    """Return `text` as a whole value that systemd does not split, such as Description=."""
    line = " ".join(_CONTROL.sub(" ", text).split())
    # A backslash at the end of a line would join it with the next assignment.
    return line.replace("%", "%%").rstrip("\\ ")


def text_of(sections: Iterable[Section]) -> str:
    """Return the body of a unit file."""
    blocks = (
        f"[{s.name}]\n" + "".join(f"{key}={value}\n" for key, value in s.entries) for s in sections
    )
    return "\n".join(blocks)


def sections_of(text: str) -> tuple[Section, ...]:
    """Return the assignments in `text` by section, the way systemd reads them.

    Comments, and lines that are no assignment, are left out; sections that occur twice are joined.
    """
    found: dict[str, list[tuple[str, str]]] = {}
    current: list[tuple[str, str]] = []
    for line in _logical_lines(text):
        if line.startswith("[") and line.endswith("]"):
            current = found.setdefault(line[1:-1], [])
        elif "=" in line:
            key, _, value = line.partition("=")
            current.append((key.strip(), value.strip()))
    return tuple(Section(name=name, entries=tuple(e)) for name, e in found.items())


def _logical_lines(text: str) -> Iterable[str]:
    """Return lines with continuations joined; comments inside a continuation are skipped."""
    pending = ""
    for raw in text.split("\n"):
        line = raw.strip()
        if not line and not pending:
            continue
        if line.startswith(("#", ";")):
            continue
        pending += line
        if (len(pending) - len(pending.rstrip("\\"))) % 2:
            pending = pending[:-1] + " "
            continue
        yield pending.strip()
        pending = ""


def sealed(
    body: str, *, source: str, version: str, comment: str = "#", adoptable: bool = True
) -> str:
    """Return `body` under a header that names its source and proves that it was not edited.

    Args:
        body: What is installed.
        source: The file that it is made from.
        version: The release that makes it.
        comment: How a comment begins there.
        adoptable: An edit of it can be kept in its source.
    """
    origin = f"generated by appliance {version} from {source}: edit that, then appliance apply"
    hint = " (keep an edit made here: appliance apply --adopt-changes)" if adoptable else ""
    digest = sha256(body.encode()).hexdigest()
    return f"{comment} {origin}\n{comment}{_SEAL}{digest}{hint}\n{body}"


def sealed_body(text: str, comment: str = "#") -> str | None:
    """Return the body below the header of `text`; None: it has no header of ours."""
    first, _, rest = text.partition("\n")
    second, _, body = rest.partition("\n")
    ours = first.startswith(f"{comment} generated by appliance ")
    return body if ours and second.startswith(comment + _SEAL) else None


def seal_holds(text: str, comment: str = "#") -> bool:
    """Tell whether `text` is exactly what `sealed` once wrote, apart from its first line."""
    body = sealed_body(text, comment)
    if body is None:
        return False
    start = text.index("\n") + 1 + len(comment + _SEAL)
    stated = text[start : start + _HEX_LENGTH]
    return stated == sha256(body.encode(errors="surrogateescape")).hexdigest()
