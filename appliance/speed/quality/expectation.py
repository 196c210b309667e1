"""Expectation of a canary, and the verdict on an answer by it."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from appliance.model.wording import printable
from appliance.speed.quality.chat_answer import ChatAnswer, ToolCall, parse_json
from appliance.speed.quality.json_schema import JsonSchema, schema_fault
from appliance.speed.quality.text_pattern import TextPattern

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
    before, the model or its engine may never have been able to do what is asked."""
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
