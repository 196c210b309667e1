"""Choice of the parser for a request body: JSON, a form, or no parser."""

import re
from collections.abc import Generator
from typing import Final

from appliance.gateway.http.request_head import RequestHead
from appliance.model.gateway import Api, Refusal
from appliance.routing.form_body import FormBody, parse_form, parse_form_in_steps
from appliance.routing.json_body import LONG_BYTES, JsonBody, parse_json_in_steps
from appliance.routing.json_scanner import BodyError
from appliance.routing.refusals import bad_request

_OTHER: Final = Api.OTHER
"""Member by name: looking one up in its Enum is slow in Python 3.11."""
_OBJECT: Final = re.compile(rb"[ \t\r\n]*\{(?!\0)")
"""Beginning of a body that every engine reads as JSON, whatever its headers say."""


def _object_in(encoding: str) -> bytes:
    """Return a pattern of the same beginning in another encoding, with or without a BOM."""
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
"""Beginning of a body that some engines read as JSON: Python's `json.loads` detects encodings."""
_BLANKS: Final = b" \t\r\n"
_PADDING: Final = _BLANKS + b"\0\xef\xbb\xbf\xff\xfe"
"""Padding: blanks in any of these encodings, and byte order marks."""


def parse_body_in_steps(
    head: RequestHead, body: bytes
) -> Generator[None, None, JsonBody | FormBody | None]:
    """Parse a long body as `parse_body` does, in steps of some milliseconds.

    Raises:
        BodyError: The body has to be read, and cannot be.
    """
    if head.form is not None:
        return (yield from parse_form_in_steps(head.form, body))
    start = body[:LONG_BYTES]
    if not start.strip(_PADDING) and start.translate(None, _BLANKS) != start:
        raise BodyError("the body begins with too many blanks")
    if _OBJECT.match(start) is not None or _has_to_be_json(head, start):
        return (yield from parse_json_in_steps(body))
    return None


def parse_body(head: RequestHead, body: bytes) -> JsonBody | FormBody | None:
    """Parse a short body that is not plain; None: the body is relayed unread.

    The headers do not decide alone: engines do not ask either, and what is not read here is not
    changed.

    Raises:
        BodyError: The body has to be read, and cannot be.
    """
    if head.form is not None:
        return parse_form(head.form, body)
    if _OBJECT.match(body) is not None or _has_to_be_json(head, body):
        return JsonBody(body)
    return None


def _has_to_be_json(head: RequestHead, start: bytes) -> bool:
    """Tell whether a body is read although it begins with no brace; raises `BodyError`."""
    if _OBJECT_ELSE.match(start) is not None:
        raise BodyError("the body is not plain UTF-8: send JSON so, without a byte order mark")
    return head.path_class.api is not _OTHER


def body_refusal(error: BodyError) -> Refusal:
    return bad_request(str(error), error.param)
