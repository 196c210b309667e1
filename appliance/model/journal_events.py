"""Main events in the journal, with their ids and fields.

A log call names its event with ``extra=event_fields(...)``. The explanations that `journalctl -x` shows
are in `appliance.install.journal_catalog`.
"""

from __future__ import annotations

from enum import StrEnum

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Final

JOURNAL_EXTRA: Final = "appliance_fields"
"""Attribute of a log record with its fields, as pairs of name and value."""
MESSAGE_ID: Final = "MESSAGE_ID"


class JournalEvent(StrEnum):
    """Event with its message id (sd_journal_print(3)), which never changes; ids are random."""

    OPERATION_BEGUN = "8e97b72c58eb4549b5012071a6528902"
    OPERATION_DONE = "2e7adca1e94b43efb709465203f9fd0d"
    OPERATION_ROLLS_BACK = "0c97794c7a3344fb9c97df26b85cb7f4"
    OPERATION_FAILED = "5faa936ecad7442f8044d99b83961a5e"
    OPERATION_CUT = "aa041a5dbcd44c6484043a6fd3730c32"
    PROFILE_SERVES = "50a4532fd0594ad88a7783ae92a26b72"
    PROFILE_LEFT = "61f7e590b4b24d768f0dd42cf54f2bf1"
    PROFILE_CRASHED = "11b9df2f76324505b8dcec1c39a03c00"
    PROFILE_STALLED = "525c7245a1eb48d0959bf8373d38a129"
    PROFILE_MISMATCH = "d41f0a6be2c74d6ba7a1b0c85f3e9712"
    PROFILE_MARKED = "b34f52268e094804a409de840f313f5a"
    PROFILE_UNCOMMITTED = "04e4eddafb894a099422bbd1d4199e36"
    START_REFUSED = "8415d912fe1a4a849b01bf16f72b0a8c"
    HOLD_ENDED = "9f3f2d7a8eda4b3eb0adf6f44a09e7f8"
    ALERT_FIRED = "c6f320ba36714bfe86d25e10f6214128"
    ALERT_RESOLVED = "414c0a6c88134b3c8226d94b00361cda"
    ALERT_CHANGED = "2c1b71275946425cb95216d67a1abe6f"
    TARGET_FAILS = "0034905ae43b4a7c8fc10e0449c1ecb7"
    ALERT_UNTOLD = "66b56d478bcb4f21a86bed0b95a23254"
    DAEMON_FAILED = "c521bec77a5d41c286fc727e4e279f65"
    REQUESTS_CUT = "746493c38d4f4554b11bd976825a2f32"
    REQUEST_CANCELLED = "a04cf5ba6b188bfe3bf9f374d612ccb7"
    KEYS_CHANGED = "c273576de28f4440910e92b01544c0b7"


class JournalField(StrEnum):
    """Field of ours; an entry has those that apply, and some of them more than once."""

    EVENT = "APPLIANCE_EVENT"
    PROFILE = "APPLIANCE_PROFILE"
    OPERATION = "APPLIANCE_OPERATION"
    KIND = "APPLIANCE_KIND"
    OUTCOME = "APPLIANCE_OUTCOME"
    ALERT = "APPLIANCE_ALERT"
    RULE = "APPLIANCE_RULE"
    SUBJECT = "APPLIANCE_SUBJECT"
    TRANSITION = "APPLIANCE_TRANSITION"
    TARGET = "APPLIANCE_TARGET"
    REQUESTER = "APPLIANCE_REQUESTER"


def event_fields(
    event: JournalEvent,
    *,
    profiles: Iterable[str] = (),
    others: Iterable[tuple[JournalField, object]] = (),
) -> dict[str, object]:
    """Return the argument `extra` of a log call that reports an event: see `event_pairs`."""
    return {JOURNAL_EXTRA: event_pairs(event, profiles=profiles, others=others)}


def event_pairs(
    event: JournalEvent,
    *,
    profiles: Iterable[str] = (),
    others: Iterable[tuple[JournalField, object]] = (),
) -> tuple[tuple[str, str], ...]:
    """Return names and values of the fields of an event.

    Args:
        event: The event.
        profiles: Names of its profiles.
        others: Further fields with their values, which hold no prompt, no completion and no secret.
    """
    fields = [(MESSAGE_ID, event.value), (JournalField.EVENT.value, event_name(event))]
    fields += [(JournalField.PROFILE.value, name) for name in profiles]
    fields += [(field.value, str(value)) for field, value in others]
    return tuple(fields)


def event_name(event: JournalEvent) -> str:
    """Return the name of an event as people write it: ``operation-failed``."""
    return event.name.lower().replace("_", "-")
