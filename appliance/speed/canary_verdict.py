"""Verdict on the answer to a canary: the answer, whole or put together from its stream, and what is expected.

Faults are phrases that never quote the answer.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from appliance.model.json_reader import decode_json
from appliance.model.wording import printable
from appliance.speed.event_stream import DONE, EventStreamParser
from appliance.speed.json_schema import JsonSchema, schema_fault
from appliance.speed.text_pattern import TextPattern

MOST_ANSWER_BYTES: Final = 1 << 20
"""Limit of a response. 2048 tokens, an event each, take half of it."""
MOST_TEXT: Final = 32 << 10
"""Limit of an answer's text and of a call's arguments, in characters."""
_MOST_CALLS: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """Call of a tool in an answer."""

    name: str
    arguments: str
    """Text that should be JSON."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatAnswer:
    """First choice of an answer."""

    text: str = ""
    calls: tuple[ToolCall, ...] = ()
    finish_reason: str | None = None
    fault: str | None = None
    """Fault of the response itself, because of which the rest may be incomplete; None: none."""


class AnswerError(ValueError):
    """Error for a response that is not what OpenAI's API describes; a phrase."""


def read_answer(body: bytes, *, streamed: bool) -> ChatAnswer:
    """Return the answer in a response with status 200."""
    if len(body) > MOST_ANSWER_BYTES:
        return ChatAnswer(fault=f"the response is longer than {MOST_ANSWER_BYTES >> 10} KiB")
    try:
        return _streamed_answer(body) if streamed else _whole_answer(body)
    except AnswerError as error:
        return ChatAnswer(fault=str(error))


def parse_json(text: str | bytes) -> object:
    """Return the value of a JSON text; raises `ValueError` for anything else, also for NaN."""
    return decode_json(text, strict=True)


def _object(text: str | bytes, subject: str) -> Mapping[str, object]:
    try:
        value = parse_json(text)
    except ValueError:
        raise AnswerError(f"{subject} is no JSON") from None
    return _member_object(value, subject)


def _member_object(value: object, subject: str) -> Mapping[str, object]:
    if not isinstance(value, dict):
        raise AnswerError(f"{subject} is no object")
    return value


def _first_choice(document: Mapping[str, object], subject: str) -> Mapping[str, object] | None:
    """Return the first choice; None: there is none, as in the event with the usage."""
    if document.get("error") is not None:
        raise AnswerError(f"{subject} tells an error")
    choices = document.get("choices")
    if not isinstance(choices, list):
        raise AnswerError(f"{subject} has no choices")
    return _member_object(choices[0], "the choice") if choices else None


def _text_of(value: object, subject: str) -> str:
    """Return a text that may be left out or null."""
    if value is None:
        return ""
    if not isinstance(value, str):
        raise AnswerError(f"{subject} is no text")
    if len(value) > MOST_TEXT:
        raise AnswerError(f"{subject} is longer than {MOST_TEXT} characters")
    return value


# --- whole -----------------------------------------------------------------------


def _whole_answer(body: bytes) -> ChatAnswer:
    choice = _first_choice(_object(body, "the response"), "the response")
    if choice is None:
        raise AnswerError("the response has no choices")
    message = _member_object(choice.get("message"), "the message")
    return ChatAnswer(
        text=_text_of(message.get("content"), "the content"),
        calls=tuple(_whole_call(call) for call in _calls(message)),
        finish_reason=_text_of(choice.get("finish_reason"), "finish_reason") or None,
    )


def _calls(message: Mapping[str, object]) -> list[object]:
    calls = message.get("tool_calls") or []
    if not isinstance(calls, list):
        raise AnswerError("tool_calls is no list")
    if len(calls) > _MOST_CALLS:
        raise AnswerError(f"the answer has more than {_MOST_CALLS} tool calls")
    return calls


def _whole_call(value: object) -> ToolCall:
    call = _member_object(value, "a tool call")
    function = _member_object(call.get("function"), "the function of a tool call")
    return ToolCall(
        name=_text_of(function.get("name"), "the name of a tool call"),
        arguments=_text_of(function.get("arguments"), "the arguments of a tool call"),
    )


# --- streamed ----------------------------------------------------------------------


@dataclass(slots=True, kw_only=True)
class _CallPieces:
    """Tool call of which pieces have come."""

    name: str = ""
    arguments: list[str] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class _Pieces:
    """Pieces of a streamed answer."""

    text: list[str] = field(default_factory=list)
    calls: dict[int, _CallPieces] = field(default_factory=dict)
    finish_reason: str | None = None

    def take(self, choice: Mapping[str, object]) -> None:
        reason = choice.get("finish_reason")
        self.finish_reason = _text_of(reason, "finish_reason") or self.finish_reason
        delta = choice.get("delta")
        if delta is None:
            return
        delta = _member_object(delta, "a delta")
        self.text.append(_text_of(delta.get("content"), "the content"))
        for value in _calls(delta):
            self._take_call(_member_object(value, "a tool call"))

    def _take_call(self, delta: Mapping[str, object]) -> None:
        index = delta.get("index", 0)
        if type(index) is not int or not 0 <= index < _MOST_CALLS:
            raise AnswerError("a tool call has no usable index")
        call = self.calls.setdefault(index, _CallPieces())
        if delta.get("function") is None:
            return
        function = _member_object(delta["function"], "the function of a tool call")
        # Some servers repeat the name in each piece, none sends it in pieces.
        call.name = _text_of(function.get("name"), "the name of a tool call") or call.name
        arguments = _text_of(function.get("arguments"), "the arguments of a tool call")
        call.arguments.append(arguments)

    def joined(self, *, ended: bool) -> ChatAnswer:
        calls = tuple(
            ToolCall(
                name=call.name,
                arguments=_text_of("".join(call.arguments), "the arguments of a tool call"),
            )
            for _, call in sorted(self.calls.items())
        )
        return ChatAnswer(
            text=_text_of("".join(self.text), "the content"),
            calls=calls,
            finish_reason=self.finish_reason,
            fault=None if ended else "the stream broke off",
        )


def _streamed_answer(body: bytes) -> ChatAnswer:
    pieces, ended = _Pieces(), False
    for data in _events(body):
        if data == DONE:
            ended = True
            break
        choice = _first_choice(_object(data, "an event"), "an event")
        if choice is not None:
            pieces.take(choice)
    return pieces.joined(ended=ended or pieces.finish_reason is not None)


def _events(body: bytes) -> Iterator[bytes]:
    parser = EventStreamParser(MOST_ANSWER_BYTES + 2)
    yield from parser.feed(body)
    yield from parser.feed(b"\n\n")  # The last event may lack its empty line.


_MOST_FAULT: Final = 120
_CUT_OFF: Final = "length"
"""Finish reason of an answer that used up its tokens."""


class CanaryOutcome(StrEnum):
    """Outcome of one canary request."""

    PASSED = "passed"
    MALFORMED = "malformed"
    """The answer breaks its format behind status 200: always a fault."""
    UNMET = "unmet"
    """The answer is refused, cut off, or another than expected: a fault once the canary has passed;
    before, the model or its engine may never have been able to answer as expected."""
    NONE = "none"
    """No verdict: the request was not answered, or gave way to a real one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CanaryVerdict:
    """Outcome of one canary request, with the fault."""

    outcome: CanaryOutcome
    fault: str = ""
    """Phrase without any part of the answer; empty for one that passed."""


PASSED: Final = CanaryVerdict(outcome=CanaryOutcome.PASSED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectation:
    """Expectation of an answer; all parts of it must hold."""

    contains: tuple[str, ...] = ()
    not_contains: tuple[str, ...] = ()
    matches: TextPattern | None = None
    """None: no expression is looked for."""
    json_schema: JsonSchema | None = None
    """Schema of a text that must be JSON; None: it need not be."""
    tool: str | None = None
    """Name of a tool that must be called; None: none need be."""
    arguments: JsonSchema | None = None
    """Schema of the call's arguments; None: any JSON object."""


def judge_answer(answer: ChatAnswer, expectation: Expectation) -> CanaryVerdict:
    """Return the verdict on an answer with status 200."""
    if answer.fault is not None:
        return _malformed(answer.fault)
    structured = expectation.json_schema is not None or expectation.tool is not None
    if structured and answer.finish_reason == _CUT_OFF:
        return _unmet("the answer used up its tokens")
    for verdict in (_call_verdict(answer, expectation), _text_verdict(answer.text, expectation)):
        if verdict.outcome is not CanaryOutcome.PASSED:
            return verdict
    return PASSED


def judge_status(status: int) -> CanaryVerdict:
    """Return the verdict on an answer with another status than 200."""
    if status in {408, 429, 503}:
        return CanaryVerdict(
            outcome=CanaryOutcome.NONE, fault=f"the engine is not ready: status {status}"
        )
    return _unmet(f"the engine refuses the request: status {status}")


def _call_verdict(answer: ChatAnswer, expectation: Expectation) -> CanaryVerdict:
    faults = (_call_fault(call) for call in answer.calls)
    if (fault := next((fault for fault in faults if fault is not None), None)) is not None:
        return _malformed(fault)
    if expectation.tool is None:
        return PASSED
    if answer.calls:
        return _arguments_verdict(answer.calls, expectation.tool, expectation.arguments)
    if expectation.tool in answer.text and "{" in answer.text:
        return _malformed("the tool call came as text: its parser did not read it")
    return _unmet("no tool was called")


def _call_fault(call: ToolCall) -> str | None:
    if not call.name:
        return "a tool call has no name"
    try:
        value = parse_json(call.arguments)
    except ValueError:
        return "the arguments of a tool call are no JSON"
    return None if isinstance(value, dict) else "the arguments of a tool call are no object"


def _arguments_verdict(
    calls: Sequence[ToolCall], tool: str, schema: JsonSchema | None
) -> CanaryVerdict:
    call = next((call for call in calls if call.name == tool), None)
    if call is None:
        return _unmet("another tool was called")
    fault = (
        None if schema is None else schema_fault(parse_json(call.arguments), schema, "arguments")
    )
    return PASSED if fault is None else _malformed(fault)


def _text_verdict(text: str, expectation: Expectation) -> CanaryVerdict:
    if expectation.json_schema is not None:
        try:
            value = parse_json(text)
        except ValueError:
            return _malformed("the answer is no JSON")
        fault = schema_fault(value, expectation.json_schema, "the answer")
        if fault is not None:
            return _malformed(fault)
    for number, part in enumerate(expectation.contains, 1):
        if part not in text:
            return _unmet(f"the answer does not contain text {number} of contains")
    for number, part in enumerate(expectation.not_contains, 1):
        if part in text:
            return _unmet(f"the answer contains text {number} of not_contains")
    if expectation.matches is not None and not expectation.matches.is_in(text):
        return _unmet("the answer does not match the expression")
    return PASSED


def _malformed(fault: str) -> CanaryVerdict:
    return CanaryVerdict(outcome=CanaryOutcome.MALFORMED, fault=_phrase(fault))


def _unmet(fault: str) -> CanaryVerdict:
    return CanaryVerdict(outcome=CanaryOutcome.UNMET, fault=_phrase(fault))


def _phrase(fault: str) -> str:
    """Return a fault fit for a message and the store: it may have the keys of an operator's schema."""
    return printable(fault if len(fault) <= _MOST_FAULT else f"{fault[:_MOST_FAULT]}…")
