"""Codec of a canary file: JSON lines, each a canary of the operator's.

docs/reference/canary-files.md describes it. A line that is not understood is left out and told,
with its number; the others count.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from appliance.model.wording import printable
from appliance.speed.quality.canary import OWN, Canary
from appliance.speed.quality.chat_answer import parse_json
from appliance.speed.quality.expectation import Expectation
from appliance.speed.quality.json_schema import JsonSchema, SchemaError, parse_schema
from appliance.speed.quality.text_pattern import PatternError, compile_pattern

MOST_FILE_BYTES: Final = 256 << 10
_MOST_LINE_CHARACTERS: Final = 32 << 10
_MOST_CANARIES: Final = 32
_MOST_NAME: Final = 40
_MOST_TOLD: Final = 5
"""Limit of problems that are told of one file."""
_MOST_TEXTS: Final = 32
_MOST_TOKENS: Final = 2048
_NAME_CHARACTERS: Final = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-_.")
_KEYS: Final = ("name", "request", "expect", "stream")
_EXPECT_KEYS: Final = ("contains", "not_contains", "matches", "json_schema", "tool", "arguments")
_OURS: Final = {
    "model": "the profile is asked by its own name",
    "stream": 'write "stream" beside "request"',
    "n": "only one answer is judged",
}


class _LineError(ValueError):
    """Error for a line that is no canary; `str()` is a phrase."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CanaryFile:
    """Canaries of one file, and what is wrong with it."""

    canaries: tuple[Canary, ...] = ()
    problems: tuple[str, ...] = ()
    """Sentences, each with the number of its line."""


def parse_canaries(text: str) -> CanaryFile:
    """Return the canaries of a file's text; blank lines and lines that begin with # are skipped."""
    canaries: dict[str, Canary] = {}
    problems: list[str] = []
    for number, line in enumerate(text.split("\n"), 1):
        line = line.strip()  # noqa: PLW2901 - the number belongs to the line as a whole
        if not line or line.startswith("#"):
            continue
        try:
            canary = _parse_line(line, canaries)
            canaries[canary.name] = canary
        except _LineError as error:
            problems.append(printable(f"line {number}: {error}"))
            if len(problems) == _MOST_TOLD:
                break
    return CanaryFile(canaries=tuple(canaries.values()), problems=tuple(problems))


def _parse_line(line: str, others: Collection[str]) -> Canary:
    if len(line) > _MOST_LINE_CHARACTERS:
        raise _LineError(f"longer than {_MOST_LINE_CHARACTERS} characters")
    try:
        document = parse_json(line)
    except ValueError:
        raise _LineError("no JSON object") from None
    values = _object(document, "the line", _KEYS)
    name = _text(values.get("name"), "name")
    if len(name) > _MOST_NAME or not _NAME_CHARACTERS.issuperset(name):
        raise _LineError(
            f'name must be up to {_MOST_NAME} of the characters a-z, 0-9, "-", "_", "."'
        )
    if OWN + name in others:
        raise _LineError(f"name {name} is used twice")
    if len(others) == _MOST_CANARIES:
        raise _LineError(f"more than {_MOST_CANARIES} canaries")
    streamed = values.get("stream", False)
    if not isinstance(streamed, bool):
        raise _LineError("stream must be true or false")
    return Canary(
        name=OWN + name,
        group=OWN + name,
        body=_body(values.get("request")),
        expectation=_expectation(values.get("expect")),
        streamed=streamed,
    )


def _object(value: object, subject: str, keys: Sequence[str]) -> Mapping[str, object]:
    if not isinstance(value, dict):
        raise _LineError(f"{subject} must be an object")
    for key in value:
        if key not in keys:
            raise _LineError(f'{subject} has no key "{key[:40]}": {", ".join(keys)} are known')
    return value


def _text(value: object, subject: str) -> str:
    if not isinstance(value, str) or not value:
        raise _LineError(f"{subject} must be a text that is not empty")
    return value


def _body(value: object) -> Mapping[str, object]:
    if not isinstance(value, dict):
        raise _LineError("request must be an object: the body of a chat request")
    for key, reason in _OURS.items():
        if key in value:
            raise _LineError(f"request has {key}: {reason}")
    messages = value.get("messages")
    if not isinstance(messages, list) or not all(isinstance(each, dict) for each in messages):
        raise _LineError("request.messages must be a list of objects")
    if not messages:
        raise _LineError("request.messages is empty")
    tokens = value.get("max_tokens", 1)
    if type(tokens) is not int or not 0 < tokens <= _MOST_TOKENS:
        raise _LineError(f"request.max_tokens must be from 1 to {_MOST_TOKENS}")
    return value


def _expectation(value: object) -> Expectation:
    expect = _object(value, "expect", _EXPECT_KEYS)
    if not expect:
        raise _LineError(f"expect is empty: give at least one of {', '.join(_EXPECT_KEYS)}")
    if "arguments" in expect and "tool" not in expect:
        raise _LineError("expect.arguments needs expect.tool")
    try:
        return Expectation(
            contains=_texts(expect, "contains"),
            not_contains=_texts(expect, "not_contains"),
            matches=compile_pattern(_text(expect["matches"], "expect.matches"))
            if "matches" in expect
            else None,
            json_schema=_schema(expect, "json_schema"),
            tool=_text(expect["tool"], "expect.tool") if "tool" in expect else None,
            arguments=_schema(expect, "arguments"),
        )
    except PatternError as error:
        raise _LineError(f"expect.matches: {error}") from None


def _texts(expect: Mapping[str, object], key: str) -> tuple[str, ...]:
    value = expect.get(key, [])
    values = [value] if isinstance(value, str) else value
    if not isinstance(values, list) or len(values) > _MOST_TEXTS:
        raise _LineError(f"expect.{key} must be a text, or a list of at most {_MOST_TEXTS}")
    return tuple(_text(each, f"expect.{key}") for each in values)


def _schema(expect: Mapping[str, object], key: str) -> JsonSchema | None:
    if key not in expect:
        return None
    try:
        return parse_schema(expect[key])
    except SchemaError as error:
        raise _LineError(f"expect.{key}: {error}") from None
