"""Errors in the form of the API that a client speaks, as a body and as an event of a stream.

OpenAI's form is that of its API reference ("Error codes", "Streaming events"), Anthropic's that
of "Errors" and "Streaming messages". Everything is ASCII, so that nothing in a message can break
out of a line.
"""

import json
from collections.abc import Mapping
from typing import Final

from appliance.domain.gateway import Api, Refusal

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


def encode_error(api: Api, refusal: Refusal) -> bytes:
    """Return the JSON body of a refusal."""
    if api is Api.ANTHROPIC:
        return _encode(_anthropic_error(refusal))
    if api is Api.OLLAMA:
        return _encode({"error": refusal.message})
    return _encode({"error": _openai_error(refusal)})


def encode_error_event(api: Api, refusal: Refusal) -> bytes:
    """Return the last event of a stream that fails; ``[DONE]`` must not follow it.

    The event begins with an empty line, which ends an event that was cut off in the middle.
    """
    match api:
        case Api.ANTHROPIC:
            return b"\n\nevent: error\ndata: %b\n\n" % encode_error(api, refusal)
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
            return b"\n\nevent: error\ndata: %b\n\n" % _encode(fields)
        case _:
            return b"\n\ndata: %b\n\n" % encode_error(api, refusal)


def encode_comment(text: str) -> bytes:
    """Return a comment for a stream of events: clients skip it, and the connection stays open."""
    # Comments have no escapes, so text other than ASCII and line ends cannot be written.
    safe = "".join(c if c.isascii() and c.isprintable() else " " for c in text)
    return b": %b\n\n" % safe.encode()


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
