"""Canaries that every profile has: an answer by a JSON schema, and calls of a tool.

A tool call is asked for in four ways, since engines read each by other code: the choice left to the
model or required, the answer whole or streamed. The subject changes with each round, so that a
fault which depends on the text shows.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from appliance.speed.quality.canary import Canary
from appliance.speed.quality.expectation import Expectation
from appliance.speed.quality.json_schema import parse_schema

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
