"""Refusals of the gateway: one owner for every status, code and message that does not name a model.

Refusals that name models or profiles are in `model_names`; `error_format` puts all of them into
the form of the API that the client speaks.
"""

from typing import Final

from appliance.domain.gateway import Refusal

# The request as such.

MALFORMED_REQUEST: Final = Refusal(
    status=400, code="bad_request", message="the request is malformed"
)
HEAD_TOO_LARGE: Final = Refusal(
    status=431,
    code="head_too_large",
    message="the request's headers are too large or too many",
)
TOO_SLOW: Final = Refusal(status=408, code="too_slow", message="the request came too slowly")
METHOD_NOT_IMPLEMENTED: Final = Refusal(
    status=501, code="method_not_implemented", message="no such method here"
)
COMPRESSED_BODY: Final = Refusal(
    status=415, code="compressed_body", message="a request's body must not be compressed"
)
UNSUPPORTED_CHARSET: Final = Refusal(
    status=415, code="unsupported_charset", message="a request's body must be UTF-8"
)
EXPECTATION_FAILED: Final = Refusal(
    status=417, code="expectation_failed", message="only 100-continue is known"
)
OTHER_HOST_IN_TARGET: Final = Refusal(
    status=421, code="misdirected", message="the target names another host"
)


def bad_request(message: str, param: str | None = None) -> Refusal:
    """Return the refusal of a request that no client should send.

    Args:
        message: What is wrong with the request.
        param: Which request parameter is to blame; None: none.
    """
    return Refusal(status=400, code="bad_request", message=message, param=param)


def body_too_large(most_bytes: int) -> Refusal:
    message = f"a request's body may have {most_bytes} bytes"
    return Refusal(status=413, code="body_too_large", message=message)


def path_not_exposed(path: str) -> Refusal:
    """Return the refusal of an admin path."""
    return Refusal(
        status=403,
        code="path_not_exposed",
        message=f"{path[:200]} governs the engine or tells of other clients, and is not exposed",
    )


# Who sent the request.

KEY_MISSING: Final = Refusal(
    status=401, code="key_missing", message="a key is needed here: appliance key add NAME"
)
KEY_UNKNOWN: Final = Refusal(status=401, code="key_unknown", message="there is no such key")
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
    message="a web page from elsewhere needs a key, or has to be listed under [gateway] origins",
)

# Room for the request.

TOO_MANY_CONNECTIONS: Final = Refusal(
    status=503, code="too_many_connections", message="too many connections", retry_after_s=5
)
BUSY: Final = Refusal(
    status=503,
    code="busy",
    message="the requests that are being read take too much memory already",
    retry_after_s=5,
)
QUEUE_FULL: Final = Refusal(
    status=503,
    code="queue_full",
    message="too many requests wait for the model already",
    retry_after_s=5,
)
WAIT_TOO_LONG: Final = Refusal(
    status=503,
    code="wait_too_long",
    message="the model did not become ready in time; appliance status tells why",
    retry_after_s=10,
)

# The engine, and operations that end requests.

ENGINE_FAILED: Final = Refusal(
    status=502,
    code="engine_failed",
    message="the engine closed the connection before its answer was complete",
)
ENGINE_UNREACHABLE: Final = Refusal(
    status=503,
    code="engine_unreachable",
    message="the engine accepts no connections",
    retry_after_s=2,
)
MODEL_REPLACED: Final = Refusal(
    status=503,
    code="switching",
    message="the model is being replaced, and the answer took longer than was waited for",
    retry_after_s=5,
)
GATEWAY_STOPPED: Final = Refusal(
    status=503,
    code="restarting",
    message="the gateway is being restarted; ask again",
    retry_after_s=1,
)
