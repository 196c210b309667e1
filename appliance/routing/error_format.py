"""Additions of the gateway to a response: errors, as a body and as an event, and signs of life.

Each has the form of the API that the client speaks, and is whole events, or a comment of one line:
decoders differ in what they take an empty line for (tests/fakes/event_decoders.py). An error event
follows a whole event, or begins the stream; into half of one nothing can be put.

OpenAI's form is that of its API reference ("Error codes", "Streaming events"), Anthropic's that
of "Errors" and "Streaming messages". Everything is ASCII, so that nothing in a message can break
out of a line.
"""

import json
from collections.abc import Mapping
from typing import Final

from appliance.model.gateway import Api, Refusal

_OPENAI_TYPES: Final = {
    401: "authentication_error",
    403: "permission_error",
    429: "rate_limit_error",
}
_ANTHROPIC_TYPES: Final = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
    529: "overloaded_error",
}
_SERVER_FAULT: Final = 500
_EMPTY_PIECES: Final[Mapping[Api, tuple[str, Mapping[str, object]]]] = {
    Api.CHAT: ("chat.completion.chunk", {"delta": {"content": ""}}),
    Api.COMPLETIONS: ("text_completion", {"text": ""}),
}
"""Objects and texts of empty pieces. None has a role: libraries put the roles of pieces together."""


def encode_error(api: Api, refusal: Refusal) -> bytes:
    """Return the JSON body of a refusal."""
    if api is Api.ANTHROPIC:
        return _encode(_anthropic_error(refusal))
    if api is Api.OLLAMA:
        return _encode({"error": refusal.message})
    return _encode({"error": _openai_error(refusal)})


def encode_error_event(api: Api, refusal: Refusal) -> bytes:
    """Return the last event of a stream that fails; ``[DONE]`` must not follow it."""
    match api:
        case Api.ANTHROPIC:
            return b"event: error\ndata: %b\n\n" % encode_error(api, refusal)
        case Api.RESPONSES:
            # Clients look for the fields of an `error` event, for an object `error`, or for both.
            fields = {
                "type": "error",
                "code": refusal.code,
                "message": refusal.message,
                "param": refusal.param,
                "sequence_number": 0,
                "error": _openai_error(refusal),
            }
            return b"event: error\ndata: %b\n\n" % _encode(fields)
        case _:
            return b"data: %b\n\n" % encode_error(api, refusal)


def encode_sign_of_life(api: Api, path: str, model: str | None, now_unix_s: float) -> bytes:
    """Return what keeps the connection of a held stream open, and clients take for nothing.

    OpenAI's completions get a piece without text: some of their clients fail at a comment that an
    empty line ends, others lose the event after a comment that none ends. Anthropic's API has an
    event for it. Events of other APIs have lines that decoders read one by one: a comment of one
    line, and no empty line after it.

    Args:
        api: API of the request.
        path: Path of the request; engines have paths of their own beside OpenAI's.
        model: Model that the request names; None: it names none.
        now_unix_s: Time of the piece.
    """
    if api is Api.ANTHROPIC:
        return b'event: ping\ndata: {"type":"ping"}\n\n'
    if api not in _EMPTY_PIECES or not path.endswith("/completions"):
        return b": waiting for the model\n"
    kind, text = _EMPTY_PIECES[api]
    choice = {"index": 0, **text, "logprobs": None, "finish_reason": None}
    piece = {
        "id": "waiting",
        "object": kind,
        "created": int(now_unix_s),
        "model": model or "default",
        "choices": [choice],
    }
    return b"data: %b\n\n" % _encode(piece)


def _openai_error(refusal: Refusal) -> Mapping[str, object]:
    fault = "server_error" if refusal.status >= _SERVER_FAULT else "invalid_request_error"
    return {
        "message": refusal.message,
        "type": _OPENAI_TYPES.get(refusal.status, fault),
        "param": refusal.param,
        "code": refusal.code,
    }


def _anthropic_error(refusal: Refusal) -> Mapping[str, object]:
    fault = "api_error" if refusal.status >= _SERVER_FAULT else "invalid_request_error"
    kind = _ANTHROPIC_TYPES.get(refusal.status, fault)
    return {"type": "error", "error": {"type": kind, "message": refusal.message}}


def _encode(document: Mapping[str, object]) -> bytes:
    return json.dumps(document, separators=(",", ":")).encode()
