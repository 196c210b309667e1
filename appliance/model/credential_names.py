"""Names of the credentials that operators make: inference keys and operators' tokens."""

import re
from collections.abc import Iterable
from typing import Final

from appliance.model.errors import BadRequestError
from appliance.model.wording import closest, short

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,47}\Z")


def check_credential_name(kind: str, name: str) -> None:
    """Check a name that a client proposes; it stands in logs, tables and sentences.

    Args:
        kind: Word for what has the name: "key".
        name: The name.

    Raises:
        BadRequestError: it cannot be one.
    """
    if not _NAME.match(name):
        raise BadRequestError(f"a {kind}'s name has up to 48 letters, digits and ._@-")


def no_such_credential(kind: str, name: str, known: Iterable[str]) -> str:
    """Return the sentence for a name or id that none has, with a suggestion where one is close.

    Args:
        kind: Word for it, which is also the verb that lists them.
        name: The name or id that was given.
        known: Names and ids of all.
    """
    meant = closest(name, known)
    hint = f'; did you mean "{meant}"?' if meant else f": appliance {kind} ls"
    return f'there is no {kind} "{short(name)}"{hint}'
