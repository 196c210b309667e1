"""Refusals of the gateway, and the table of them that clients' authors read."""

import inspect
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from appliance.model.gateway import Api, Refusal
from appliance.routing import refusals
from appliance.routing.refusals import (
    encode_error,
    encode_error_event,
    encode_sign_of_life,
)

TABLE = Path(__file__).parents[3] / "docs/reference/client-api.md"
ROW = re.compile(r"^\| (\d{3}) \| `(\w+)` \| (?:(\d+) s|(varies))? ?\|", re.MULTILINE)
SAMPLES: dict[object, object] = {
    str: "genesis",
    str | None: None,
    int: 7,
    bool: True,
    Sequence[str]: ("genesis", "aeon"),
}
"""An argument of each type that a refusal is made with."""


def made() -> list[Refusal]:
    """Return every refusal: the constants, and what each function returns."""
    found: list[Refusal] = []
    for name, member in vars(refusals).items():
        if isinstance(member, Refusal):
            found.append(member)
        elif (
            inspect.isfunction(member)
            and not name.startswith("_")
            and inspect.signature(member).return_annotation is Refusal
        ):
            parameters = inspect.signature(member).parameters.values()
            arguments = {one.name: SAMPLES[one.annotation] for one in parameters}
            flags = [n for n, value in arguments.items() if value is True]
            for flag in (True, False) if flags else (True,):
                one = member(**{**arguments, **dict.fromkeys(flags, flag)})
                assert isinstance(one, Refusal), name
                found.append(one)
    return found


def test_the_table_has_every_refusal() -> None:
    """Status, code and time of each refusal are in the reference, and nothing else is."""
    told = {
        (int(s), code, after or varies) for s, code, after, varies in ROW.findall(TABLE.read_text())
    }
    real = {
        (
            one.status,
            one.code,
            "varies" if one.code == "switch_failed" else str(one.retry_after_s or ""),
        )
        for one in made()
        # It has the engine's own status, and its own sentence below the table.
        if one.code != "engine_error"
    }
    assert told == real


def test_a_refusal_that_nothing_ends_has_no_time() -> None:
    """`Retry-After` goes with 503 alone: clients repeat what has one."""
    assert {one.status for one in made() if one.retry_after_s is not None} == {503}


def test_a_refusal_for_an_operator_names_a_command() -> None:
    """A state that a person has to end is told with the command that ends it, or that says when it ends."""
    codes = {
        "model_failed",
        "model_retired",
        "model_not_active",
        "box_held",
        "box_lent",
        "no_model",
    }
    found = [one for one in made() if one.code in codes]
    assert {one.code for one in found} == codes
    assert all(re.search(r"appliance (status|logs|switch|mark)", one.message) for one in found)


def test_each_refusal_says_what_to_do() -> None:
    """People see these sentences in their own clients; those that state a rule of HTTP are for authors of clients."""
    rules = {
        "bad_request",
        "compressed_body",
        "engine_error",
        "expectation_failed",
        "method_not_implemented",
        "unsupported_charset",
    }
    to_do = re.compile(
        r"appliance [a-z]+|ask (again|at)|send |lists|listed|/v1/models|there are:|close "
    )
    silent = {
        one.message for one in made() if one.code not in rules and not to_do.search(one.message)
    }
    assert silent == {refusals.OTHER_HOST_IN_TARGET.message}


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
