"""What a request's body asks for."""

import re
from typing import Final

from appliance.domain.gateway import Api, Refusal
from appliance.gateway.heads import RequestHead
from appliance.planning.routing import bodies, multipart
from appliance.planning.routing.bodies import BodyError, Document
from appliance.planning.routing.multipart import Form

_OTHER: Final = Api.OTHER
"""An Enum's members are dear to look up in this version of Python."""
_OBJECT: Final = re.compile(rb"[ \t\r\n]*\{(?!\0)")
"""How a body begins that every engine reads as JSON, whatever its headers say."""


def _object_in(encoding: str) -> bytes:
    """How the same object begins in another encoding, with or without a byte order mark."""
    blanks = b"|".join(re.escape(blank.encode(encoding)) for blank in " \t\r\n")
    mark, brace = "\ufeff".encode(encoding), re.escape("{".encode(encoding))
    return b"(?:%b)?(?:%b)*%b" % (re.escape(mark), blanks, brace)


_OBJECT_ELSE: Final = re.compile(
    b"|".join(
        (
            rb"\xef\xbb\xbf[ \t\r\n]*\{",
            *map(_object_in, ("utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be")),
        )
    )
)
"""How a body begins that some engines read as JSON: Python's `json.loads` finds the encoding out."""


def opened(head: RequestHead, body: bytes) -> Document | Form | None:
    """A body that can be read; None: there is none, or it is none of our business.

    What the client says about it does not decide alone: engines do not ask either, and what is
    not read is not changed.

    Raises:
        BodyError: It has to be read, and cannot.
    """
    if not body:
        return None
    if head.form is not None:
        return multipart.opened(head.form, body)
    if _OBJECT.match(body) is not None:
        return bodies.opened(body)
    if _OBJECT_ELSE.match(body) is not None:
        raise BodyError("the body is not plain UTF-8: send JSON so, without a byte order mark")
    return None if head.place.api is _OTHER else bodies.opened(body)


def refused(error: BodyError) -> Refusal:
    """What a client is told about a body that cannot be routed."""
    return Refusal(status=400, code="bad_request", message=str(error), param=error.param)
