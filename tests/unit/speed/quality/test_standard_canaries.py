"""The canaries that every profile has."""

import json

from appliance.speed.quality.chat_answer import ChatAnswer, ToolCall
from appliance.speed.quality.expectation import CanaryOutcome, judge_answer
from appliance.speed.quality.standard_canaries import standard_canaries


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
