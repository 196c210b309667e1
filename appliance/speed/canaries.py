"""Canaries: requests of which the answer's form, or a part of it, is known.

Every profile has the standard ones: an answer by a JSON schema, and calls of a tool. A tool call is
requested in four ways, since engines read each by other code: the choice left to the model or
required, the answer whole or streamed. The subject changes with each round, so that a fault which
depends on the text shows.

The operator's own ones are in a file of JSON lines for each profile (docs/reference/canary-files.md).
A line that cannot be read is left out and reported with its number; the others count.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from appliance.engines import ENGINES
from appliance.engines.shared.engine import Probing
from appliance.model.profile import Applied, WarmUp, requested_name
from appliance.model.wording import printable
from appliance.speed.canary_verdict import Expectation, parse_json
from appliance.speed.json_schema import JsonSchema, SchemaError, parse_schema
from appliance.speed.text_pattern import PatternError, TextPattern

PATH: Final = "/v1/chat/completions"
OWN: Final = "own:"
"""Beginning of the names of the operator's canaries, each a group of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Canary:
    """Canary of one profile."""

    name: str
    group: str
    """Canaries whose pass rate is tracked together."""
    body: Mapping[str, object]
    """Request without the parameters that `canary_body` adds."""
    expectation: Expectation
    streamed: bool = False


def canary_body(applied: Applied, canary: Canary) -> Mapping[str, object]:
    """Return the body of a canary's request; values of the canary's own go first.

    Thinking is off as in a probe: how a model thinks is no matter of form, and takes tokens.
    """
    engine = ENGINES.get(applied.engine)
    probing = Probing() if engine is None else engine.probing
    return {
        "temperature": 0,
        "max_tokens": 256,
        **probing.chat_parameters,
        **canary.body,
        "model": requested_name(applied),
        "stream": canary.streamed,
    }


def generates_text(applied: Applied) -> bool:
    """Tell whether the profile can have canaries at all."""
    return applied.warm_up in {WarmUp.CHAT, WarmUp.COMPLETION}


SCHEMA_GROUP: Final = "schema"
TOOLS_GROUP: Final = "tools"
TOOLS_PREFIX: Final = "tool-"
"""Beginning of the names of canaries that ask for a tool call."""
_REQUIRED: Final = "required"
REQUIRED_TOOL: Final = f"{TOOLS_PREFIX}{_REQUIRED}"
"""Beginning of those that leave the model no choice."""
_SUBJECTS: Final = (
    ("Lyon", "water the plants"),
    ("Kyoto", 'read the paper "On Growth"'),
    ("Nairobi", "back up the laptop"),
    ("São Paulo", "call José about the keys"),
    ("Oslo", "check the oven"),
    ("Hanoi", "renew the C:\\certs folder"),
    ("Quito", "feed the cat & the fish"),
    ("Perth", "buy 3 apples, 2 pears"),
    ("Zürich", "answer the e-mail from Zoë"),
    ("Dakar", "turn off the heating"),
    ("Riga", "stretch for a while"),
    ("Boston", "review pull request #42"),
    ("Cusco", "return the library books"),
    ("Delhi", "take the bread out"),
    ("Malmö", "pay the invoice {7}"),
    ("Porto", "walk the dog"),
)
_CITY: Final[Mapping[str, object]] = {
    "type": "object",
    "properties": {
        "city": {"type": "string"},
        "continent": {
            "type": "string",
            "enum": ["Africa", "America", "Asia", "Australia", "Europe"],
        },
        "coastal": {"type": "boolean"},
        "neighbours": {"type": "integer"},
    },
    "required": ["city", "continent", "coastal", "neighbours"],
    "additionalProperties": False,
}
_REMINDER: Final[Mapping[str, object]] = {
    "type": "object",
    "properties": {
        "text": {"type": "string", "description": "what to do"},
        "minutes": {"type": "integer", "description": "minutes from now"},
        "urgent": {"type": "boolean"},
    },
    "required": ["text", "minutes", "urgent"],
    "additionalProperties": False,
}
_TOOL: Final = "set_reminder"
_EXPECTED_CITY: Final = Expectation(json_schema=parse_schema(_CITY))
_EXPECTED_CALL: Final = Expectation(tool=_TOOL, arguments=parse_schema(_REMINDER))


def standard_canaries(number: int, *, tools: bool) -> Sequence[Canary]:
    """Return the canaries of a round.

    Args:
        number: Number of the round, by which the subject changes.
        tools: Whether the profile promises tool calls.
    """
    city, task = _SUBJECTS[number % len(_SUBJECTS)]
    schemas = [_schema_canary(city, streamed=streamed) for streamed in (False, True)]
    if not tools:
        return schemas
    calls = [
        _tool_canary(task, 5 + number % 50, choice=choice, streamed=streamed)
        for choice in ("auto", _REQUIRED)
        for streamed in (False, True)
    ]
    return [*schemas, *calls]


def _schema_canary(city: str, *, streamed: bool) -> Canary:
    return Canary(
        name="schema-streamed" if streamed else "schema",
        group=SCHEMA_GROUP,
        body={
            "messages": _messages(
                f"Describe {city} as JSON: its name as city, its continent, whether it lies on"
                " the coast, and the number of countries with a border to its country."
            ),
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": "city", "strict": True, "schema": _CITY},
            },
        },
        expectation=_EXPECTED_CITY,
        streamed=streamed,
    )


def _tool_canary(task: str, minutes: int, *, choice: str, streamed: bool) -> Canary:
    return Canary(
        name=TOOLS_PREFIX + (f"{choice}-streamed" if streamed else choice),
        group=TOOLS_GROUP,
        body={
            "messages": _messages(
                f"Use the tool: remind me in {minutes} minutes to {task}. It is not urgent."
            ),
            "tools": [
                {
                    "type": "function",
                    "function": {
                        "name": _TOOL,
                        "description": "Sets a reminder for the user.",
                        "parameters": _REMINDER,
                    },
                }
            ],
            "tool_choice": choice,
        },
        expectation=_EXPECTED_CALL,
        streamed=streamed,
    )


def _messages(text: str) -> Sequence[Mapping[str, str]]:
    return [{"role": "user", "content": text}]


MOST_FILE_BYTES: Final = 256 << 10
_MOST_LINE_CHARACTERS: Final = 32 << 10
_MOST_CANARIES: Final = 32
_MOST_NAME: Final = 40
_MOST_PROBLEMS: Final = 5
"""Limit of problems that are reported of one file."""
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
            if len(problems) == _MOST_PROBLEMS:
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
            matches=TextPattern(_text(expect["matches"], "expect.matches"))
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
