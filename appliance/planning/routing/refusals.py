"""How a client is told that something is wrong, in the form of the API that it speaks.

OpenAI's form is that of its API reference ("Error codes", "Streaming events"), Anthropic's that
of "Errors" and "Streaming messages". Everything is ASCII, so that nothing in a message can break
out of a line.
"""

import json
from collections.abc import Mapping
from typing import Final

from appliance.domain.gateway import Api

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


def body(api: Api, status: int, code: str, message: str, param: str | None = None) -> bytes:
    """The JSON body of a refusal.

    Args:
        api: Whose form it takes.
        status: HTTP's.
        code: A word for programs.
        message: For people.
        param: Which request parameter is to blame; None: none.
    """
    if api is Api.ANTHROPIC:
        return _text(_anthropic(status, message))
    return _text({"error": _openai(status, code, message, param)})


def event(api: Api, status: int, code: str, message: str, param: str | None = None) -> bytes:
    """The last event of a stream that fails; ``[DONE]`` must not follow it.

    It begins with an empty line, so that an event that was cut off in the middle does not take
    it in. Arguments as those of `body`.
    """
    match api:
        case Api.ANTHROPIC:
            return b"\n\nevent: error\ndata: %b\n\n" % _text(_anthropic(status, message))
        case Api.RESPONSES:
            # Clients look for the fields of an `error` event, for an object `error`, or for both.
            error = _openai(status, code, message, param)
            found = {"type": "error", "code": code, "message": message, "param": param}
            data = _text(found | {"sequence_number": 0, "error": error})
            return b"\n\nevent: error\ndata: %b\n\n" % data
        case _:
            return b"\n\ndata: %b\n\n" % body(api, status, code, message, param)


def comment(text: str) -> bytes:
    """What a stream may say without a client noticing; it keeps connections open."""
    # Anything but ASCII or a line's end would have to be escaped, and a comment has no escapes.
    safe = "".join(c if c.isascii() and c.isprintable() else " " for c in text)
    return b": %b\n\n" % safe.encode()


def _openai(status: int, code: str, message: str, param: str | None) -> Mapping[str, object]:
    fault = "server_error" if status >= _SERVER_FAULT else "invalid_request_error"
    kind = _OPENAI_TYPES.get(status, fault)
    return {"message": message, "type": kind, "param": param, "code": code}


def _anthropic(status: int, message: str) -> Mapping[str, object]:
    fault = "api_error" if status >= _SERVER_FAULT else "invalid_request_error"
    kind = _ANTHROPIC_TYPES.get(status, fault)
    return {"type": "error", "error": {"type": kind, "message": message}}


def _text(document: Mapping[str, object]) -> bytes:
    return json.dumps(document, separators=(",", ":")).encode()
