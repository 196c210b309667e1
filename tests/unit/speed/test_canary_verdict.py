"""Answer of a chat request, whole and streamed, and the verdict on it."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.speed.canary_verdict import (
    MOST_ANSWER_BYTES,
    MOST_TEXT,
    CanaryOutcome,
    ChatAnswer,
    Expectation,
    ToolCall,
    judge_answer,
    judge_status,
    read_answer,
)
from appliance.speed.json_schema import parse_schema
from appliance.speed.text_pattern import TextPattern

CALL = {"id": "1", "type": "function", "function": {"name": "add", "arguments": '{"a":1}'}}


def whole(message: object, finish: object = "stop") -> bytes:
    return json.dumps({"choices": [{"message": message, "finish_reason": finish}]}).encode()


def stream(*deltas: object, finish: object = "stop", done: bool = True) -> bytes:
    events: list[object] = [{"choices": [{"delta": delta}]} for delta in deltas]
    events.append({"choices": [{"delta": {}, "finish_reason": finish}]})
    events.append({"choices": [], "usage": {"completion_tokens": 3}})
    lines = [json.dumps(event) for event in events] + (["[DONE]"] if done else [])
    return "".join(f"data: {line}\n\n" for line in lines).encode()


def test_whole() -> None:
    """A whole answer has its text, its calls and its finish reason."""
    answer = read_answer(
        whole({"content": None, "tool_calls": [CALL]}, "tool_calls"), streamed=False
    )
    call = ToolCall(name="add", arguments='{"a":1}')
    assert answer == ChatAnswer(calls=(call,), finish_reason="tool_calls")
    assert read_answer(whole({"content": "hi"}, None), streamed=False) == ChatAnswer(text="hi")


def test_streamed() -> None:
    """Pieces of the text and of several calls are put together in their order."""
    body = stream(
        {"role": "assistant", "content": "a"},
        {"content": "b", "tool_calls": None},
        {"tool_calls": [{"index": 1, "function": {"name": "two", "arguments": ""}}]},
        {"tool_calls": [{"index": 0, "id": "x", "function": {"name": "one", "arguments": '{"a"'}}]},
        {"tool_calls": [{"index": 0, "function": {"name": None, "arguments": ":1}"}}]},
        {"tool_calls": [{"index": 1}]},
        None,
    )
    answer = read_answer(body, streamed=True)
    assert (answer.text, answer.fault, answer.finish_reason) == ("ab", None, "stop")
    assert answer.calls == (
        ToolCall(name="one", arguments='{"a":1}'),
        ToolCall(name="two", arguments=""),
    )


def test_end_of_stream() -> None:
    """A stream ends with a finish reason or [DONE]; one without either broke off."""
    assert read_answer(stream(done=False), streamed=True).fault is None
    assert read_answer(stream(finish=None), streamed=True).fault is None
    assert read_answer(b"data: [DONE]", streamed=True).fault is None
    broken = stream({"content": "a"}, finish=None, done=False)
    assert read_answer(broken, streamed=True) == ChatAnswer(text="a", fault="the stream broke off")


@pytest.mark.parametrize(
    ("body", "fault"),
    [
        (b"", "the response is no JSON"),
        (b"[" * 100_000, "the response is no JSON"),
        (b"[]", "the response is no object"),
        (b'{"error": "x"}', "the response tells an error"),
        (b'{"choices": null}', "the response has no choices"),
        (b'{"choices": []}', "the response has no choices"),
        (b'{"choices": [1]}', "the choice is no object"),
        (b'{"choices": [{}]}', "the message is no object"),
        (whole({"content": 1}), "the content is no text"),
        (whole({"content": float("nan")}), "the response is no JSON"),
        (whole({"content": "a" * (MOST_TEXT + 1)}), f"longer than {MOST_TEXT} characters"),
        (whole({"tool_calls": "x"}), "tool_calls is no list"),
        (whole({"tool_calls": [CALL] * 17}), "more than 16 tool calls"),
        (whole({"tool_calls": [1]}), "a tool call is no object"),
        (whole({"tool_calls": [{}]}), "the function of a tool call is no object"),
        (
            whole({"tool_calls": [{"function": {"name": "a", "arguments": {}}}]}),
            "the arguments of a tool call is no text",
        ),
        (b"a" * (MOST_ANSWER_BYTES + 1), "the response is longer than 1024 KiB"),
    ],
)
def test_whole_faults(body: bytes, fault: str) -> None:
    """Each fault of a whole response is a phrase, and none raises."""
    assert (read_answer(body, streamed=False).fault or "").endswith(fault)


@pytest.mark.parametrize(
    ("body", "fault"),
    [
        (b"data: {\n\n", "an event is no JSON"),
        (b'data: {"error": {"code": 500}}\n\n', "an event tells an error"),
        (b"data: {}\n\n", "an event has no choices"),
        (stream(1), "a delta is no object"),
        (stream({"tool_calls": [{"index": -1}]}), "a tool call has no usable index"),
        (stream({"tool_calls": [{"index": True}]}), "a tool call has no usable index"),
        (stream({"tool_calls": [{"index": 16}]}), "a tool call has no usable index"),
        (stream({"tool_calls": [{"function": 1}]}), "the function of a tool call is no object"),
        (
            stream(*[{"content": "a" * MOST_TEXT}] * 2),
            f"the content is longer than {MOST_TEXT} characters",
        ),
    ],
)
def test_streamed_faults(body: bytes, fault: str) -> None:
    """Each fault of a stream is a phrase, and none raises."""
    assert read_answer(body, streamed=True).fault == fault


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
        contains=("Paris", "France"), not_contains=("Texas",), matches=TextPattern("^P")
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
        contains=("a",), matches=TextPattern("a+$"), json_schema=INTEGER, tool="add"
    )
    verdict = judge_answer(read_answer(body, streamed=streamed), expectation)
    assert bool(verdict.fault) is (verdict.outcome is not PASSED)
