"""Sessions of operators who have signed in to the page, in the memory of this process alone.

A session begins with an operator's token and keeps it, because every request that changes something is made with
it: a token that was removed or has expired changes nothing, whatever its sessions are.
"""

import hmac
import secrets
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Final

LASTS_S: Final = 12 * 3600.0
MOST_SESSIONS: Final = 32
"""Sessions that are kept; a further one ends the oldest."""
_ID_BYTES: Final = 32
LONGEST_ID: Final = 64


@dataclass(slots=True, kw_only=True)
class Session:
    """One browser that has signed in."""

    name: str
    """Operator and token, for people."""
    token: str = field(repr=False)
    csrf: str = field(repr=False)
    """Value of a field in each form of the page."""
    until_s: float
    notice: str = ""
    """Sentence about the last form, which the next page shows once."""

    def owns(self, csrf: str) -> bool:
        """Tell whether a form with this value is of a page that the session was shown."""
        return hmac.compare_digest(self.csrf.encode(), csrf.encode())

    def take_notice(self) -> str:
        """Return the notice, and forget it."""
        notice, self.notice = self.notice, ""
        return notice


class Sessions:
    """Sessions by their ids, which are in the browsers' cookies."""

    def __init__(self) -> None:
        self._sessions: OrderedDict[str, Session] = OrderedDict()

    def begin(self, token: str, name: str, now_s: float) -> str:
        """Begin a session; returns its id."""
        session_id = secrets.token_urlsafe(_ID_BYTES)
        self._sessions[session_id] = Session(
            name=name,
            token=token,
            csrf=secrets.token_urlsafe(_ID_BYTES),
            until_s=now_s + LASTS_S,
        )
        if len(self._sessions) > MOST_SESSIONS:
            self._sessions.popitem(last=False)
        return session_id

    def find(self, session_id: str, now_s: float) -> Session | None:
        """Return the session of an id; None: there is none, or its time is over."""
        if len(session_id) > LONGEST_ID:
            return None
        session = self._sessions.get(session_id)
        if session is not None and session.until_s <= now_s:
            del self._sessions[session_id]
            return None
        return session

    def end(self, session_id: str) -> None:
        """End a session, if there is one."""
        self._sessions.pop(session_id, None)
