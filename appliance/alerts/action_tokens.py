"""Action tokens: what the buttons of a message send, each good for one action on one alert, once.

==============  ================================================================================
text            ``A17.3.ack.SECRET``: alert, episode, action, and 128 random bits; in the
                button's address alone
kept            the digest of the whole text, with alert, action and the time at which it expires
accepted        a text whose digest is kept, unused and not expired, while its alert goes on in
                the same episode; the statement that finds it marks it as used
refused alike   used, expired, altered in any character, of another alert or action, unknown
==============  ================================================================================

The digest covers alert, episode and action too, so that none of them can be exchanged. What is looked up
is a digest, never the secret: how long a comparison takes tells nothing about a text that is not known.
"""

from base64 import urlsafe_b64encode
from dataclasses import dataclass
from enum import StrEnum
from hashlib import sha256
from typing import Final

SECRET_BYTES: Final = 16
TOKEN_S: Final = 24 * 3600.0
"""Time for which a button works."""
MOST_TOKEN_CHARACTERS: Final = 120
_PARTS: Final = 4


class ButtonAction(StrEnum):
    """Action of a button."""

    ACK = "ack"
    SILENCE = "silence"


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionToken:
    """Token as it is kept: without its text."""

    digest: str
    alert: str
    episode: int
    action: ButtonAction
    expires_unix_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PresentedToken:
    """Parts of a text that somebody sent as a token, which proves nothing yet."""

    digest: str
    alert: str
    episode: int
    action: ButtonAction


def issue_token(
    alert: str, episode: int, action: ButtonAction, secret: bytes, now_unix_s: float
) -> tuple[str, ActionToken]:
    """Return the text of a new token, and what is kept of it.

    Args:
        alert: Short id of the alert.
        episode: Number of its episode.
        action: Action of the button.
        secret: Random bytes, `SECRET_BYTES` of them.
        now_unix_s: The time.
    """
    if len(secret) != SECRET_BYTES:
        raise ValueError(f"a secret has {SECRET_BYTES} bytes")
    word = urlsafe_b64encode(secret).rstrip(b"=").decode()
    text = f"{alert}.{episode}.{action}.{word}"
    kept = ActionToken(
        digest=_digest(text),
        alert=alert,
        episode=episode,
        action=action,
        expires_unix_s=now_unix_s + TOKEN_S,
    )
    return text, kept


def present_token(text: str) -> PresentedToken | None:
    """Return the parts of a text; None: it has not the form of a token."""
    if not text.isascii() or len(text) > MOST_TOKEN_CHARACTERS:
        return None
    parts = text.split(".")
    if len(parts) != _PARTS or parts[2] not in set(ButtonAction) or not parts[1].isdigit():
        return None
    return PresentedToken(
        digest=_digest(text),
        alert=parts[0],
        episode=int(parts[1]),
        action=ButtonAction(parts[2]),
    )


def _digest(text: str) -> str:
    return sha256(text.encode("ascii")).hexdigest()
