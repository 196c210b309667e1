"""Errors as clients of each API expect them."""

import json
from typing import Any

import pytest

from appliance.model.gateway import Api, Refusal
from appliance.routing.error_format import (
    encode_error,
    encode_error_event,
    encode_sign_of_life,
)

STOPPED = Refusal(status=503, code="cut", message="The model stopped.")


def data_of(event: bytes) -> dict[str, Any]:
    """The data of an event's only data line."""
    (line,) = [line for line in event.split(b"\n") if line.startswith(b"data: ")]
    found = json.loads(line.removeprefix(b"data: "))
    assert isinstance(found, dict)
    return found


@pytest.mark.parametrize("api", [Api.CHAT, Api.COMPLETIONS, Api.RESPONSES, Api.OTHER])
@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, "invalid_request_error"),
        (401, "authentication_error"),
        (403, "permission_error"),
        (404, "invalid_request_error"),
        (429, "rate_limit_error"),
        (503, "server_error"),
    ],
)
def test_openai_has_an_error_object(api: Api, status: int, kind: str) -> None:
    """The error object has a message, a type, a parameter and a code."""
    refusal = Refusal(status=status, code="a_code", message="Why.", param="model")
    found = json.loads(encode_error(api, refusal))
    expected = {"message": "Why.", "type": kind, "param": "model", "code": "a_code"}
    assert found == {"error": expected}


def test_ollama_has_one_text() -> None:
    """Ollama's clients show the text of `error`, and expect nothing else."""
    refusal = Refusal(status=404, code="a_code", message="Why.")
    assert json.loads(encode_error(Api.OLLAMA, refusal)) == {"error": "Why."}


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, "invalid_request_error"),
        (404, "not_found_error"),
        (413, "request_too_large"),
        (500, "api_error"),
        (503, "overloaded_error"),
    ],
)
def test_anthropic_has_a_type_of_its_own(status: int, kind: str) -> None:
    """The body has an outer type, and an inner one with the message."""
    refusal = Refusal(status=status, code="a_code", message="Why.")
    found = json.loads(encode_error(Api.ANTHROPIC, refusal))
    assert found == {"type": "error", "error": {"type": kind, "message": "Why."}}


@pytest.mark.parametrize("api", [Api.CHAT, Api.COMPLETIONS, Api.OTHER])
def test_a_chat_stream_ends_in_an_error_object(api: Api) -> None:
    """The error is data without an event name, which is what clients of chat streams parse."""
    event = encode_error_event(api, STOPPED)
    assert event.startswith(b"data: ")
    assert event.endswith(b"}\n\n")
    assert data_of(event) == json.loads(encode_error(api, STOPPED))
    assert b"[DONE]" not in event


def test_a_responses_stream_ends_in_an_error_event() -> None:
    """The data have the fields of the API's `error` event, and the object that libraries need."""
    event = encode_error_event(Api.RESPONSES, STOPPED)
    assert event.startswith(b"event: error\ndata: ")
    found = data_of(event)
    assert (found["type"], found["code"], found["message"]) == (
        "error",
        "cut",
        "The model stopped.",
    )
    assert found["error"]["message"] == "The model stopped."


def test_an_anthropic_stream_ends_in_an_error_event() -> None:
    """The event is named `error`, with the body that a refusal would have."""
    event = encode_error_event(Api.ANTHROPIC, STOPPED)
    assert event.startswith(b"event: error\ndata: ")
    assert data_of(event) == json.loads(encode_error(Api.ANTHROPIC, STOPPED))


@pytest.mark.parametrize("api", list(Api))
def test_no_message_breaks_out_of_its_line(api: Api) -> None:
    """Line ends, also those of Unicode, and lone surrogates are escaped."""
    message = 'a\n\ndata: b\r\x00\u2028\x85\ud800"'
    refusal = Refusal(status=400, code="c", message=message)
    event = encode_error_event(api, refusal)
    assert event.isascii()
    assert event.strip(b"\n").count(b"\n") == (api in {Api.RESPONSES, Api.ANTHROPIC})
    assert b"\r" not in event
    encode_error(api, refusal).decode("ascii")


@pytest.mark.parametrize("model", [None, "genesis", 'a\n\ndata: "\u2028'])
@pytest.mark.parametrize(
    ("api", "path", "begin"),
    [
        (Api.CHAT, "/v1/chat/completions", b"data: {"),
        (Api.COMPLETIONS, "/v1/completions", b"data: {"),
        (Api.COMPLETIONS, "/completion", b": waiting"),
        (Api.CHAT, "/invocations", b": waiting"),
        (Api.RESPONSES, "/v1/responses", b": waiting"),
        (Api.ANTHROPIC, "/v1/messages", b"event: ping\ndata: {"),
        (Api.OTHER, "/v1/audio/speech", b": waiting"),
    ],
)
def test_a_sign_of_life_is_one_event_or_one_line(
    api: Api, path: str, begin: bytes, model: str | None
) -> None:
    """An event ends with its empty line, a comment without one, whatever model is named."""
    sign = encode_sign_of_life(api, path, model, 1.5)
    assert sign.startswith(begin)
    assert sign.isascii()
    assert sign.count(b"\n\n") == (begin[:1] != b":")
    assert sign.endswith(b"\n")
