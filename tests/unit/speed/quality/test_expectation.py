"""The verdict on an answer."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.speed.quality.chat_answer import ChatAnswer, ToolCall, read_answer
from appliance.speed.quality.expectation import (
    CanaryOutcome,
    Expectation,
    judge_answer,
    judge_status,
)
from appliance.speed.quality.json_schema import parse_schema
from appliance.speed.quality.text_pattern import compile_pattern

PASSED, MALFORMED, UNMET = CanaryOutcome.PASSED, CanaryOutcome.MALFORMED, CanaryOutcome.UNMET
INTEGER = parse_schema({"type": "object", "properties": {"a": {"type": "integer"}}})
_JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(
            st.sampled_from(
                [
                    *("choices", "message", "delta", "content", "tool_calls", "function", "name"),
                    *("arguments", "finish_reason", "error", "index", "a"),
                ]
            ),
            inner,
            max_size=4,
        ),
    ),
    max_leaves=20,
)
_RESPONSES = st.builds(
    lambda inner, event: (b"data: " if event else b"") + json.dumps(inner).encode() + b"\n\n",
    st.one_of(_JSON, st.lists(_JSON, min_size=1, max_size=2).map(lambda some: {"choices": some})),
    st.booleans(),
)
ADD = Expectation(tool="add", arguments=INTEGER)
CITY = Expectation(json_schema=INTEGER)


def called(arguments: str, name: str = "add", **more: str) -> ChatAnswer:
    return ChatAnswer(calls=(ToolCall(name=name, arguments=arguments),), **more)


@pytest.mark.parametrize(
    ("answer", "expectation", "outcome", "fault"),
    [
        (called('{"a": 1}'), ADD, PASSED, ""),
        (called("{}"), Expectation(tool="add"), PASSED, ""),
        (called('{"a": 1'), ADD, MALFORMED, "the arguments of a tool call are no JSON"),
        (called("[1]"), ADD, MALFORMED, "the arguments of a tool call are no object"),
        (called('{"a": "1"}'), ADD, MALFORMED, "arguments.a is not of type integer"),
        (called("{}", ""), ADD, MALFORMED, "a tool call has no name"),
        (called("{}", "other"), ADD, UNMET, "another tool was called"),
        (ChatAnswer(text="No."), ADD, UNMET, "no tool was called"),
        (
            ChatAnswer(text='<tool_call>{"name": "add"}'),
            ADD,
            MALFORMED,
            "the tool call came as text: its parser did not read it",
        ),
        (called("{", finish_reason="length"), ADD, UNMET, "the answer used up its tokens"),
        (called("{"), Expectation(), MALFORMED, "the arguments of a tool call are no JSON"),
        (ChatAnswer(fault="broke off"), Expectation(), MALFORMED, "broke off"),
        (ChatAnswer(text='{"a": 2}'), CITY, PASSED, ""),
        (ChatAnswer(text='{"a": 2'), CITY, MALFORMED, "the answer is no JSON"),
        (ChatAnswer(text="[]"), CITY, MALFORMED, "the answer is not of type object"),
        (
            ChatAnswer(text="{", finish_reason="length"),
            CITY,
            UNMET,
            "the answer used up its tokens",
        ),
    ],
)
def test_form(
    answer: ChatAnswer, expectation: Expectation, outcome: CanaryOutcome, fault: str
) -> None:
    """A broken format is malformed; a refusal or another answer is unmet."""
    verdict = judge_answer(answer, expectation)
    assert (verdict.outcome, verdict.fault) == (outcome, fault)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("Paris, in France", ""),
        ("paris, in France", "the answer does not contain text 1 of contains"),
        ("Paris", "the answer does not contain text 2 of contains"),
        ("Paris, in France, or Texas", "the answer contains text 1 of not_contains"),
        ("Well, Paris, in France", "the answer does not match the expression"),
    ],
)
def test_text(text: str, fault: str) -> None:
    """An expectation holds in all its parts, of an answer that was cut off too."""
    expectation = Expectation(
        contains=("Paris", "France"), not_contains=("Texas",), matches=compile_pattern("^P")
    )
    verdict = judge_answer(ChatAnswer(text=text, finish_reason="length"), expectation)
    assert verdict.fault == fault
    assert verdict.outcome is (UNMET if fault else PASSED)


def test_status() -> None:
    """An engine that is overloaded gives no verdict, one that refuses an unmet canary."""
    assert judge_status(503).outcome is CanaryOutcome.NONE
    assert judge_status(400).outcome is UNMET
    assert judge_status(500).fault == "the engine refuses the request: status 500"


def test_faults_are_fit_for_a_message() -> None:
    """Keys of an operator's schema, which may be long or no text at all, are cut and escaped."""
    schema = parse_schema({"properties": {"\ud800\n" + "x" * 500: {"type": "null"}}})
    answer = ChatAnswer(text='{"\\ud800\\n' + "x" * 500 + '": 1}')
    fault = judge_answer(answer, Expectation(json_schema=schema)).fault
    assert fault.startswith(r"the answer.\ud800\nxxx")
    assert len(fault.encode()) < 150


@given(st.one_of(st.binary(max_size=300), _RESPONSES), st.booleans())
def test_any_answer_has_a_verdict(body: bytes, streamed: bool) -> None:  # noqa: FBT001
    """Any answer of an engine has a verdict, and nothing is raised."""
    expectation = Expectation(
        contains=("a",), matches=compile_pattern("a+$"), json_schema=INTEGER, tool="add"
    )
    verdict = judge_answer(read_answer(body, streamed=streamed), expectation)
    assert bool(verdict.fault) is (verdict.outcome is not PASSED)
