"""Refusals of the gateway: one owner for every status, code and message that clients get.

At the end, the forms in which the gateway adds to a response: a refusal as a body or as an event, and
a sign of life. Each has the form of the API that the client speaks, and is whole events, or a comment
of one line: decoders differ in what they take an empty line for (tests/fakes/event_decoders.py). An
error event follows a whole event, or begins the stream; into half of one nothing can be put.

OpenAI's form is that of its API reference ("Error codes", "Streaming events"), Anthropic's that
of "Errors" and "Streaming messages". Everything is ASCII, so that nothing in a message can break
out of a line.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Final

from appliance.model.gateway import Api, Refusal
from appliance.model.wording import joined

# Refusals of malformed requests.

MALFORMED_REQUEST: Final = Refusal(
    status=400, code="bad_request", message="the request is malformed"
)
HEAD_TOO_LARGE: Final = Refusal(
    status=431,
    code="head_too_large",
    message="the request's headers are too large or too many: send fewer",
)
TOO_SLOW: Final = Refusal(
    status=408, code="too_slow", message="the request came too slowly; ask again"
)
UPGRADE_NOT_SUPPORTED: Final = Refusal(
    status=426,
    code="upgrade_not_supported",
    message="the gateway changes to no protocol but websocket: send the request in HTTP/1.1, without Upgrade",
)
METHOD_NOT_IMPLEMENTED: Final = Refusal(
    status=501, code="method_not_implemented", message="the gateway does not support this method"
)
COMPRESSED_BODY: Final = Refusal(
    status=415,
    code="compressed_body",
    message="a request's body may be plain, or coded with gzip or zstd, once: switch other compression off in "
    "the client, or have it send Content-Encoding: gzip or zstd",
)
BODY_EXPANDS: Final = Refusal(
    status=413,
    code="body_expands",
    message="the plain body is more than 250 times as long as the coded one: send it plain, without Content-Encoding",
)
UNSUPPORTED_CHARSET: Final = Refusal(
    status=415, code="unsupported_charset", message="a request's body must be UTF-8"
)
EXPECTATION_FAILED: Final = Refusal(
    status=417,
    code="expectation_failed",
    message="the header Expect may only have the value 100-continue",
)
OTHER_HOST_IN_TARGET: Final = Refusal(
    status=421, code="misdirected", message="the request target names another host"
)


def bad_request(message: str, param: str | None = None) -> Refusal:
    """Return the refusal of a malformed request.

    Args:
        message: What is wrong with the request.
        param: Which request parameter is to blame; None: none.
    """
    return Refusal(status=400, code="bad_request", message=message, param=param)


def body_too_large(most_bytes: int) -> Refusal:
    message = f"a request's body may have {most_bytes} bytes: send less, or raise max_body under [gateway]"
    return Refusal(status=413, code="body_too_large", message=message)


def path_not_exposed(path: str) -> Refusal:
    """Return the refusal of an admin path."""
    return Refusal(
        status=403,
        code="path_not_exposed",
        message=f"{path[:200]} changes the engine or shows other clients' requests, and is not exposed unless "
        "allow_paths under [gateway] lists it",
    )


# Refusals by key, host and origin.

KEY_MISSING: Final = Refusal(
    status=401, code="key_missing", message="the request needs a key: appliance key add NAME"
)
KEY_UNKNOWN: Final = Refusal(
    status=401,
    code="key_unknown",
    message="the key is none of this box's; an operator makes one: appliance key add NAME",
)
HOST_REFUSED: Final = Refusal(
    status=421,
    code="misdirected",
    message=(
        "the header Host has a name that is not this machine's: ask at 127.0.0.1, with a key, "
        "or by a name that is listed under [gateway] names"
    ),
)
ORIGIN_REFUSED: Final = Refusal(
    status=403,
    code="origin_refused",
    message="a web page of another origin needs a key, or its origin has to be listed under [gateway] origins",
)

# Refusals for lack of capacity.

TOO_MANY_CONNECTIONS: Final = Refusal(
    status=503,
    code="too_many_connections",
    message="too many connections are open already; close some, or ask again",
    retry_after_s=5,
)
BUSY: Final = Refusal(
    status=503,
    code="busy",
    message="the requests that are being read take too much memory already; ask again",
    retry_after_s=5,
)
QUEUE_FULL: Final = Refusal(
    status=503,
    code="queue_full",
    message="too many requests wait for the model already; ask again",
    retry_after_s=5,
)
WAIT_TOO_LONG: Final = Refusal(
    status=503,
    code="wait_too_long",
    message="the model is still not ready, and this request has waited as long as it may; ask again to "
    "wait on, appliance status tells why",
    retry_after_s=10,
)

GATEWAY_FAULT: Final = Refusal(
    status=500,
    code="gateway_fault",
    message="the gateway itself has failed at this request; ask again, and if it comes again, "
    "journalctl -u appliance-gateway tells where",
)

_REPAIR_S: Final = 30
"""Time until a repair is likely: the second of the pauses in `switch.repair`."""

# Refusals because of models and engines, and of operations that end requests.

ENGINE_FAILED: Final = Refusal(
    status=502,
    code="engine_failed",
    message="the engine closed the connection before its answer was complete; ask again, and appliance status "
    "tells how it is",
)
ENGINE_UNREACHABLE: Final = Refusal(
    status=503,
    code="engine_unreachable",
    message="the engine accepts no connections; ask again, and appliance status tells how it is",
    retry_after_s=2,
)
NO_MODEL: Final = Refusal(
    status=503,
    code="no_model",
    message="no model serves now; appliance status tells why",
    retry_after_s=10,
)


def model_not_allowed(key: str, quoted: str) -> Refusal:
    message = f"the key {key} may not use {quoted}; /v1/models lists what it may"
    return Refusal(status=403, code="model_not_allowed", message=message, param="model")


def model_not_found(quoted: str, listed: str, meant: str | None = None) -> Refusal:
    """Return the refusal of a name that no profile serves.

    Args:
        quoted: Name in the request.
        listed: Names that there are.
        meant: Name that is most similar; None: none is.
    """
    guess = "" if meant is None else f'did you mean "{meant}"? '
    message = f"there is no model {quoted}; {guess}there are: {listed}"
    return Refusal(status=404, code="model_not_found", message=message, param="model")


def profile_not_applied(profile: str) -> Refusal:
    message = f"{profile} is no longer applied; /v1/models lists what is"
    return Refusal(status=404, code="model_not_found", message=message, param="model")


def model_unavailable(profile: str) -> Refusal:
    """Return the refusal for a committed profile that is down."""
    return Refusal(
        status=503,
        code="model_unavailable",
        message=f"{profile} is down at the moment; appliance status tells why",
        param="model",
        retry_after_s=10,
    )


def model_failed(profile: str, *, is_repaired: bool) -> Refusal:
    """Return the refusal for a profile whose last start or run failed.

    Args:
        profile: Name of the profile.
        is_repaired: The supervisor starts it again by itself, after a pause that grows.
    """
    todo = f"appliance logs {profile} tells why"
    if is_repaired:
        return Refusal(
            status=503,
            code="model_failed",
            message=f"{profile} has failed, and is started again by itself; {todo}",
            param="model",
            retry_after_s=_REPAIR_S,
        )
    return Refusal(
        status=404,
        code="model_failed",
        message=f"{profile} has failed, and nothing starts it again; {todo}, then: appliance switch {profile}",
        param="model",
    )


def model_not_ready(profile: str) -> Refusal:
    """Return the refusal of a request that only looks, while requests for answers wait for the profile."""
    return Refusal(
        status=503,
        code="model_not_ready",
        message=f"{profile} is being loaded, replaced or measured, and is not asked meanwhile; requests for "
        "answers wait for it, appliance status tells how far it is",
        param="model",
        retry_after_s=5,
    )


def websocket_refused(path: str, status: int) -> Refusal:
    """Return the refusal of a websocket that the engine does not take.

    Args:
        path: Path of the request.
        status: Status of the engine's response.
    """
    return Refusal(
        status=426,
        code="websocket_refused",
        message=f"the engine takes no websocket at {path[:200]} (it answered {status}): send the request in "
        "HTTP/1.1, without Upgrade",
    )


def engine_died_twice(profile: str) -> Refusal:
    """Return the refusal of a request that an engine had whenever it died."""
    # A status that clients do not retry by themselves.
    return Refusal(
        status=422,
        code="engine_died_twice",
        message=f"the engine of {profile} has died twice while it had this very request, which is not sent again "
        f"for half an hour; appliance logs {profile} tells why it died: change the request, or the profile",
    )


def model_retired(profile: str) -> Refusal:
    return Refusal(
        status=404,
        code="model_retired",
        message=f"{profile} is retired; to use it again: appliance mark {profile} standby",
        param="model",
    )


def box_paused(*, lent: bool) -> Refusal:
    """Return the refusal while an operator keeps models from running; when that ends is not known.

    Args:
        lent: A command of an operator has the GPUs; else a hold is in force.
    """
    if lent:
        return Refusal(
            status=503,
            code="box_lent",
            message="a command of an operator runs in place of models, which come back when it ends; "
            "appliance status names it",
        )
    return Refusal(
        status=503,
        code="box_held",
        message="an operator holds the box, so no model runs; appliance status tells until when, "
        "and appliance switch NAME ends the hold",
    )


def ollama_not_spoken(path: str, base_url: str) -> Refusal:
    """Return the refusal of a path of Ollama's own API.

    Args:
        path: Path of the request.
        base_url: Base URL of OpenAI's API at the address that the client knows.
    """
    return Refusal(
        status=404,
        code="ollama_not_spoken",
        message=f"{path[:200]} is Ollama's API, which is not spoken here: OpenAI's is, with the base URL "
        f"{base_url} (models: /v1/models, chat: /v1/chat/completions), and Anthropic's at /v1/messages; "
        "choose OpenAI compatible in the client",
    )


def model_not_active(profile: str, active: Sequence[str]) -> Refusal:
    """Return the refusal for a profile that is down and not committed.

    Args:
        profile: Name of the profile.
        active: Names of the profiles that serve; empty: none does.
    """
    verb = "are" if active[1:] else "is"
    now = f"{joined(active, nothing='no model')} {verb} active"
    # A status that clients do not retry by themselves: nothing changes until an operator acts.
    return Refusal(
        status=404,
        code="model_not_active",
        message=f"{profile} is not active, {now}; to change that: appliance switch {profile}",
        param="model",
    )


def switch_failed(profile: str, why: str, retry_after_s: int) -> Refusal:
    return Refusal(
        status=503,
        code="switch_failed",
        message=f"{profile} was asked for and does not serve: {why}; appliance logs {profile} tells more",
        param="model",
        retry_after_s=retry_after_s,
    )


def engine_error(status: int, message: str | None) -> Refusal:
    """Return an engine's own error, for a stream that has begun before it.

    Args:
        status: Status of the engine's response.
        message: Message in it; None: it has none.
    """
    return Refusal(
        status=status, code="engine_error", message=message or f"the engine answered {status}"
    )


MODEL_REPLACED: Final = Refusal(
    status=503,
    code="switching",
    message="the model is being replaced, and the answer was not complete by the deadline of the drain; ask again, "
    "and the request waits for the next model",
    retry_after_s=5,
)
REQUEST_CANCELLED: Final = Refusal(
    # Clients repeat a request by themselves after a status from 500 on.
    status=403,
    code="request_cancelled",
    message="an operator has cancelled the request, so its answer ends here; ask again if it should go on",
)
GATEWAY_STOPPED: Final = Refusal(
    status=503,
    code="restarting",
    message="the gateway is being restarted; ask again",
    retry_after_s=1,
)


# Forms of a refusal, and of a sign of life.

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
