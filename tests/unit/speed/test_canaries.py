"""Canaries: the standard ones, the operator's file, and the request of one."""

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.model.profile import WarmUp
from appliance.speed.canaries import (
    Canary,
    canary_body,
    generates_text,
    parse_canaries,
    standard_canaries,
)
from appliance.speed.canary_verdict import (
    CanaryOutcome,
    ChatAnswer,
    Expectation,
    ToolCall,
    judge_answer,
)
from tests.fakes.profiles import applied

GENESIS = applied("genesis")

CANARY = Canary(
    name="a", group="a", body={"messages": [], "max_tokens": 9}, expectation=Expectation()
)


def test_body() -> None:
    """A canary asks the profile by a name it serves, without thinking, and its own values go first."""
    body = canary_body(replace(GENESIS, engine="vllm", served=("gen*", "big")), CANARY)
    assert body == {
        "model": "big",
        "messages": [],
        "max_tokens": 9,
        "temperature": 0,
        "stream": False,
        "chat_template_kwargs": {"enable_thinking": False},
    }


def test_unknown_engine() -> None:
    """A profile of an engine that this release does not know is asked like any other."""
    body = canary_body(replace(GENESIS, engine="other"), replace(CANARY, streamed=True))
    assert body["stream"] is True
    assert body["temperature"] == 0


def test_generates_text() -> None:
    """Profiles that embed or classify have no canaries."""
    found = {kind for kind in WarmUp if generates_text(replace(GENESIS, warm_up=kind))}
    assert found == {WarmUp.CHAT, WarmUp.COMPLETION}


def test_names() -> None:
    """A schema is asked for in two ways, a tool call in four, and only of a profile with tools."""
    schemas = ["schema", "schema-streamed"]
    calls = ["tool-auto", "tool-auto-streamed", "tool-required", "tool-required-streamed"]
    assert [each.name for each in standard_canaries(0, tools=False)] == schemas
    found = standard_canaries(0, tools=True)
    assert [each.name for each in found] == [*schemas, *calls]
    assert {each.group for each in found} == {"schema", "tools"}
    assert all(each.streamed == each.name.endswith("-streamed") for each in found)
    assert [each.body["tool_choice"] for each in found[2:]] == [
        "auto",
        "auto",
        "required",
        "required",
    ]


def test_subject_changes() -> None:
    """The text of a canary changes from round to round, and begins again some time."""
    texts = [json.dumps(standard_canaries(number, tools=True)[5].body) for number in range(800)]
    assert len(set(texts)) == 400
    schemas = {json.dumps(standard_canaries(number, tools=True)[0].body) for number in range(32)}
    assert len(schemas) == 16


def test_expected() -> None:
    """An answer as the schema or the tool wants it passes."""
    schema, _, call, *_ = standard_canaries(3, tools=True)
    city = {"city": "São Paulo", "continent": "America", "coastal": False, "neighbours": 10}
    answer = ChatAnswer(text=json.dumps(city), finish_reason="stop")
    assert judge_answer(answer, schema.expectation).outcome is CanaryOutcome.PASSED
    arguments = json.dumps({"text": "call José", "minutes": 8, "urgent": False})
    called = ChatAnswer(calls=(ToolCall(name="set_reminder", arguments=arguments),))
    assert judge_answer(called, call.expectation).outcome is CanaryOutcome.PASSED
    assert judge_answer(called, schema.expectation).outcome is CanaryOutcome.MALFORMED


REQUEST = {"messages": [{"role": "user", "content": "What is the capital of France?"}]}
LINE: dict[str, Any] = {"name": "capital", "request": REQUEST, "expect": {"contains": "Paris"}}


def line(**changes: object) -> str:
    return json.dumps({key: value for key, value in (LINE | changes).items() if value is not None})


def test_canaries() -> None:
    """Each line is a canary in a group of its own; blank lines and comments are skipped."""
    tool = {"tool": "add", "arguments": {"type": "object"}, "matches": "^$"}
    text = "\n".join(["# ours", "", line(), line(name="tool", expect=tool, stream=True) + "\r", ""])
    found = parse_canaries(text)
    assert found.problems == ()
    capital, call = found.canaries
    assert (capital.name, capital.group, capital.streamed) == ("own:capital", "own:capital", False)
    assert capital.body == REQUEST
    assert capital.expectation.contains == ("Paris",)
    assert call.streamed
    assert call.expectation.tool == "add"
    assert call.expectation.arguments is not None
    assert call.expectation.matches is not None


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{", "no JSON object"),
        ("[1]", "the line must be an object"),
        ("[" * 5000, "no JSON object"),
        ("a" * 40_000, "longer than 32768 characters"),
        (line(extra=1), 'the line has no key "extra": name, request, expect, stream are known'),
        (line(name=None), "name must be a text that is not empty"),
        (line(name="A B"), "name must be up to 40 of the characters"),
        (line(name="a" * 41), "name must be up to 40 of the characters"),
        (line(stream="yes"), "stream must be true or false"),
        (line(request=[]), "request must be an object"),
        (line(request=REQUEST | {"model": "x"}), "request has model: the profile is asked by"),
        (line(request=REQUEST | {"stream": True}), 'request has stream: write "stream" beside'),
        (line(request={"messages": "hi"}), "request.messages must be a list of objects"),
        (line(request={"messages": ["hi"]}), "request.messages must be a list of objects"),
        (line(request={"messages": []}), "request.messages is empty"),
        (line(request=REQUEST | {"max_tokens": 0}), "request.max_tokens must be from 1 to 2048"),
        (line(request=REQUEST | {"max_tokens": "9"}), "request.max_tokens must be from 1 to 2048"),
        (line(expect="Paris"), "expect must be an object"),
        (line(expect={}), "expect is empty: give at least one of contains"),
        (line(expect={"equals": "a"}), 'expect has no key "equals"'),
        (line(expect={"contains": 1}), "expect.contains must be a text, or a list"),
        (line(expect={"contains": [""]}), "expect.contains must be a text that is not empty"),
        (line(expect={"matches": "(a"}), "expect.matches: missing )"),
        (line(expect={"json_schema": {"$ref": 1}}), 'expect.json_schema: keyword "$ref"'),
        (line(expect={"arguments": {}}), "expect.arguments needs expect.tool"),
        (line(expect={"tool": "a", "arguments": 1}), "expect.arguments: a schema is an object"),
    ],
)
def test_bad_line(text: str, problem: str) -> None:
    """A line that is not understood is told with its number, and the others count."""
    found = parse_canaries(f"{line(name='first')}\n{text}\n{line(name='last')}")
    assert [each.name for each in found.canaries] == ["own:first", "own:last"]
    assert len(found.problems) == 1
    assert found.problems[0].startswith(f"line 2: {problem}")


def test_bounds() -> None:
    """Names are unique, canaries at most 32, and of many problems the first five are told."""
    twice = parse_canaries(f"{line()}\n{line()}")
    assert twice.problems == ("line 2: name capital is used twice",)
    many = parse_canaries("\n".join(line(name=f"c{number}") for number in range(33)))
    assert len(many.canaries) == 32
    assert many.problems == ("line 33: more than 32 canaries",)
    assert len(parse_canaries("{\n" * 1000).problems) == 5


def test_problems_are_fit_for_a_message() -> None:
    """A key that is no text that can be stored is escaped."""
    (problem,) = parse_canaries('{"\\ud800\\n": 1}').problems
    assert problem.startswith(r'line 1: the line has no key "\ud800\n"')


@given(st.text(alphabet=st.characters(), max_size=200))
def test_any_text_is_taken(text: str) -> None:
    """Any text of a file is taken: nothing is raised, and each problem has its line."""
    found = parse_canaries(text)
    assert all(problem.startswith("line ") for problem in found.problems)
