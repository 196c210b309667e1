"""What a request's body asks for."""

import re
from collections.abc import Generator
from typing import Final

from appliance.domain.gateway import Api, Refusal
from appliance.gateway.http.request_head import RequestHead
from appliance.planning.routing import bodies, multipart
from appliance.planning.routing.bodies import BodyError, Document
from appliance.planning.routing.multipart import Form
from appliance.planning.routing.splicing import LONG_BYTES

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
_BLANKS: Final = b" \t\r\n"
_PADDING: Final = _BLANKS + b"\0\xef\xbb\xbf\xff\xfe"
"""Blanks in any of these encodings, and byte order marks."""


def opened_in_steps(
    head: RequestHead, body: bytes
) -> Generator[None, None, Document | Form | None]:
    """The same as `opened` for a long body, in steps of some milliseconds.

    Raises:
        BodyError: It has to be read, and cannot.
    """
    if head.form is not None:
        return (yield from multipart.opened_in_steps(head.form, body))
    start = body[:LONG_BYTES]
    if not start.strip(_PADDING) and start.translate(None, _BLANKS) != start:
        raise BodyError("the body begins with too many blanks")
    if _OBJECT.match(start) is not None or _is_read(head, start):
        return (yield from bodies.opened_in_steps(body))
    return None


def opened(head: RequestHead, body: bytes) -> Document | Form | None:
    """A short body that can be read; None: it is none of our business.

    What the client says about it does not decide alone: engines do not ask either, and what is
    not read is not changed.

    Raises:
        BodyError: It has to be read, and cannot.
    """
    if head.form is not None:
        return multipart.opened(head.form, body)
    # Most bodies begin so; a regular expression takes twice as long.
    if body.startswith(b'{"') or _OBJECT.match(body) is not None or _is_read(head, body):
        return Document(body)
    return None


def _is_read(head: RequestHead, start: bytes) -> bool:
    """Whether a body that begins with no brace is read all the same; raises `BodyError`."""
    if _OBJECT_ELSE.match(start) is not None:
        raise BodyError("the body is not plain UTF-8: send JSON so, without a byte order mark")
    return head.place.api is not _OTHER


def refused(error: BodyError) -> Refusal:
    """What a client is told about a body that cannot be routed."""
    return Refusal(status=400, code="bad_request", message=str(error), param=error.param)
