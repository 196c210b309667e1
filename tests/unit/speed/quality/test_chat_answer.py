"""The answer of a chat request, whole and streamed."""

import json

import pytest

from appliance.speed.quality.chat_answer import (
    MOST_ANSWER_BYTES,
    MOST_TEXT,
    ChatAnswer,
    ToolCall,
    read_answer,
)

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
