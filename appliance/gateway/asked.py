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
_OBJECT: Final = re.compile(rb"(?:\xef\xbb\xbf)?[ \t\r\n]*\{")
"""How a body begins that some engine reads as JSON, whatever its headers say."""


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
    if head.place.api is not _OTHER or _OBJECT.match(body) is not None:
        return bodies.opened(body)
    return None


def refused(error: BodyError) -> Refusal:
    """What a client is told about a body that cannot be routed."""
    return Refusal(status=400, code="bad_request", message=str(error), param=error.param)
