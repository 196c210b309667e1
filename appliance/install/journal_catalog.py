"""Explanations of the events in the journal, and generator of what is made of them.

Written by ``python -m appliance.install.journal_catalog``: `units/appliance.catalog`, in which `journalctl -x`
finds the explanation of an entry by its message id (catalog format: systemd's CATALOG.md), and
docs/reference/journal.md. A test fails while a file is not what this would write.
"""

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from textwrap import wrap
from typing import Final

from appliance.model.journal_events import JournalEvent, JournalField, event_name

FIELD_MEANINGS: Final[Mapping[JournalField, str]] = {
    JournalField.EVENT: "name of the event, such as `operation-failed`",
    JournalField.PROFILE: "name of a profile; an operation has one such field for each of its profiles",
    JournalField.OPERATION: "number of the operation, as in `appliance status --json`",
    JournalField.KIND: "kind of the operation: `switch`, `start`, `stop`, `restart`, `hold`, `repair` or `run`",
    JournalField.OUTCOME: "outcome of the operation, such as `done` or `rolled-back`; verdict of the gate",
    JournalField.ALERT: "short id of the alert, such as `A17`",
    JournalField.RULE: "rule of the alert, as in the runbooks",
    JournalField.SUBJECT: "subject of the alert: `box`, `profile:NAME`, `gpu:UUID` or `watch:NAME`",
    JournalField.TRANSITION: "kind of the change of the alert: `fired`, `resolved`, `acked` and so on",
    JournalField.TARGET: "name of a target of messages",
    JournalField.REQUESTER: "requester, as the kernel identified the caller",
}


@dataclass(frozen=True, slots=True)
class EventExplanation:
    """Texts of the catalog; ``@FIELD@`` stands for the value of a field of the entry."""

    subject: str
    meaning: str
    """Sentences about the event and its consequences."""
    action: str
    """Sentences about what to do, with commands; empty: nothing."""
    page: str
    """Page of the documentation, below docs/, with the anchor where there is one."""


EXPLANATIONS: Final[Mapping[JournalEvent, EventExplanation]] = {
    JournalEvent.OPERATION_BEGUN: EventExplanation(
        "Operation @APPLIANCE_OPERATION@ (@APPLIANCE_KIND@) has begun",
        "@APPLIANCE_REQUESTER@ asked for it. The supervisor owns it from now on: it goes on when the"
        " command that asked for it ends.",
        "To follow it: appliance wait. To undo it: appliance cancel.",
        "explanation/the-switch.md",
    ),
    JournalEvent.OPERATION_DONE: EventExplanation(
        "Operation @APPLIANCE_OPERATION@ (@APPLIANCE_KIND@) is done",
        "The box is as the operation was to make it, also after a reboot.",
        "",
        "explanation/the-switch.md",
    ),
    JournalEvent.OPERATION_ROLLS_BACK: EventExplanation(
        "Operation @APPLIANCE_OPERATION@ (@APPLIANCE_KIND@) rolls back",
        "A phase failed or passed its deadline, or somebody cancelled the operation. The supervisor stops"
        " what it started and starts again what served before.",
        "Wait: the end of the roll-back is another entry. The reason is in the message, the last"
        " lines of the model in: appliance logs @APPLIANCE_PROFILE@.",
        "how-to/switch-and-roll-back.md",
    ),
    JournalEvent.OPERATION_FAILED: EventExplanation(
        "Operation @APPLIANCE_OPERATION@ (@APPLIANCE_KIND@) ended as @APPLIANCE_OUTCOME@",
        "The operation did not do what it was to do. With the outcome rolled-back the models that served"
        " before serve again; with failed they do not; with refused nothing was changed; with superseded"
        " a unit that was started by hand has the devices.",
        "Read the reason in the message, then: appliance status, appliance logs @APPLIANCE_PROFILE@.",
        "runbooks.md#switch-failed",
    ),
    JournalEvent.OPERATION_CUT: EventExplanation(
        "Operation @APPLIANCE_OPERATION@ (@APPLIANCE_KIND@) was cut by a reboot",
        "The box went down before the operation had ended. What it had not committed does not count: the"
        " boot started the profiles that were committed before.",
        "To ask for it again, repeat the command; what serves now: appliance status.",
        "explanation/the-switch.md",
    ),
    JournalEvent.PROFILE_SERVES: EventExplanation(
        "@APPLIANCE_PROFILE@ serves",
        "The unit of the model is active and its engine answers. Where the message says that it is not"
        " committed, it was started by hand and will not be started by the next boot.",
        "To keep it over a boot: appliance switch @APPLIANCE_PROFILE@.",
        "explanation/desired-state.md",
    ),
    JournalEvent.PROFILE_LEFT: EventExplanation(
        "@APPLIANCE_PROFILE@ no longer serves",
        "The unit of the model was stopped, by an operation or by hand, or it ended by itself; an entry"
        " beside this one tells which.",
        "To see what serves now: appliance status. To start it again: appliance start"
        " @APPLIANCE_PROFILE@.",
        "explanation/desired-state.md",
    ),
    JournalEvent.PROFILE_CRASHED: EventExplanation(
        "@APPLIANCE_PROFILE@ crashed",
        "The engine ended by itself. systemd starts it again, up to the limit of its unit.",
        "Read its last lines: appliance logs @APPLIANCE_PROFILE@. When it happens again and again, an"
        " alert of the rule crash-loop follows.",
        "runbooks.md#crash-loop",
    ),
    JournalEvent.PROFILE_STALLED: EventExplanation(
        "@APPLIANCE_PROFILE@ makes no progress",
        "The engine has requests, and neither sends bytes nor works.",
        "appliance logs @APPLIANCE_PROFILE@; then appliance restart @APPLIANCE_PROFILE@.",
        "runbooks.md#no-progress",
    ),
    JournalEvent.PROFILE_MISMATCH: EventExplanation(
        "@APPLIANCE_PROFILE@ runs otherwise than declared",
        "What the engine reports about itself is not what the profile declares: the message has both"
        " values, and where the engine says so. A switch is undone for it, unless the profile allows it.",
        "To compare again: appliance verify @APPLIANCE_PROFILE@. Change the profile, or name what may"
        " differ in its allow_mismatch.",
        "explanation/the-switch.md#running-equals-declared",
    ),
    JournalEvent.PROFILE_MARKED: EventExplanation(
        "@APPLIANCE_PROFILE@ has another mark",
        "@APPLIANCE_REQUESTER@ changed the mark. People are told of faults of live profiles alone;"
        " a retired profile is not started.",
        "To change it again: appliance mark @APPLIANCE_PROFILE@ live|standby|retired.",
        "how-to/answer-an-alert.md",
    ),
    JournalEvent.PROFILE_UNCOMMITTED: EventExplanation(
        "A boot does not start @APPLIANCE_PROFILE@ any more",
        "@APPLIANCE_REQUESTER@ took the profile out of what a boot serves. If it serves, it goes on until it is"
        " stopped.",
        "To have a boot start it again: appliance switch @APPLIANCE_PROFILE@.",
        "how-to/switch-and-roll-back.md#what-a-boot-serves",
    ),
    JournalEvent.START_REFUSED: EventExplanation(
        "The start of @APPLIANCE_PROFILE@ was not admitted",
        "The gate, which runs before every start however it was asked for, found the devices or the"
        " memory of the profile in other hands. refused: systemd does not try again. late: the memory"
        " is still in use, and systemd tries again.",
        "The message names the holder: stop it, or wait. Then: appliance switch @APPLIANCE_PROFILE@.",
        "how-to/read-what-happened.md#why-it-was-not-started",
    ),
    JournalEvent.HOLD_ENDED: EventExplanation(
        "The hold of the box has ended",
        "Models may be started again. Those that the hold stopped come back by themselves when its time"
        " was up, not when it was ended by hand.",
        "To see what serves: appliance status. To hold the box again: appliance hold.",
        "how-to/hold-the-gpus.md",
    ),
    JournalEvent.ALERT_FIRED: EventExplanation(
        "Alert @APPLIANCE_ALERT@ fires: @APPLIANCE_RULE@ of @APPLIANCE_SUBJECT@",
        "The rule has been broken for as long as it allows. The targets are told, unless the alert is"
        " silenced, inhibited by its cause or held back by quiet hours.",
        "appliance alerts show @APPLIANCE_ALERT@; the runbook of the rule says what to look at. To say"
        " that somebody is on it: appliance alerts ack @APPLIANCE_ALERT@.",
        "runbooks.md",
    ),
    JournalEvent.ALERT_RESOLVED: EventExplanation(
        "Alert @APPLIANCE_ALERT@ is over: @APPLIANCE_RULE@ of @APPLIANCE_SUBJECT@",
        "The rule has held again for as long as it asks. Targets that were told of the alert are told of"
        " its end.",
        "",
        "explanation/alerts.md",
    ),
    JournalEvent.ALERT_CHANGED: EventExplanation(
        "Alert @APPLIANCE_ALERT@: @APPLIANCE_TRANSITION@",
        "The state of the alert changed otherwise than by firing or by ending: a reminder was due, it"
        " became more severe, somebody acknowledged or silenced it, or its subject was retired.",
        "appliance alerts show @APPLIANCE_ALERT@",
        "explanation/alerts.md",
    ),
    JournalEvent.TARGET_FAILS: EventExplanation(
        "The target @APPLIANCE_TARGET@ takes no message",
        "Messages are kept and sent again later, with growing pauses, for seven days.",
        "appliance alerts outbox shows what waits and why; appliance alerts test tries every target.",
        "how-to/get-alerts.md",
    ),
    JournalEvent.ALERT_UNTOLD: EventExplanation(
        "The target @APPLIANCE_TARGET@ is not told of alert @APPLIANCE_ALERT@",
        "The message was refused for good, or could not be sent for seven days.",
        "Check the target: appliance target ls, appliance alerts test.",
        "how-to/get-alerts.md",
    ),
    JournalEvent.DAEMON_FAILED: EventExplanation(
        "A daemon of the appliance ends with an error",
        "The daemon cannot go on. systemd starts it again; running models are not touched.",
        "The message says what is missing. If it comes again and again: systemctl status of the unit.",
        "explanation/watching-the-watcher.md",
    ),
    JournalEvent.REQUESTS_CUT: EventExplanation(
        "Requests were cut at the end of a drain",
        "Requests to @APPLIANCE_PROFILE@ did not end within the time that they had. Their clients were"
        " sent an error, not a shortened answer.",
        "To allow more time: appliance switch NAME --drain 5m, or the setting of the profile.",
        "explanation/the-gateway.md",
    ),
    JournalEvent.REQUEST_CANCELLED: EventExplanation(
        "A client's request to @APPLIANCE_PROFILE@ was cancelled",
        "@APPLIANCE_REQUESTER@ has cancelled one request, which ended with an error for its client. No other"
        " request and no model is concerned.",
        "",
        "how-to/use-the-page.md",
    ),
    JournalEvent.KEYS_CHANGED: EventExplanation(
        "A key for other machines was made or removed",
        "@APPLIANCE_REQUESTER@ changed the keys with which other machines may use the models.",
        "To see all keys: appliance key ls.",
        "how-to/give-others-access.md",
    ),
}


_NOTE: Final = (
    "Generated by python -m appliance.install.journal_catalog: change that module instead."
)
_INSTALLED_DOCS: Final = "file:///usr/local/share/appliance/docs"
_CATALOG_WIDTH: Final = 76
_PAGE: Final = """\
# Journal

<!-- {note} -->

The daemons write their log to the journal with fields, so that `journalctl` finds entries without
searching in texts, and `journalctl -x` explains the main events
([how to read it](../how-to/read-what-happened.md)). Started by hand, a daemon writes to standard error
instead, without fields. A value is cut at 32 KiB. When the journal reads too slowly, entries are dropped
rather than waited for, and a later entry has their number.

## Fields

Beside those of systemd.journal-fields(7), among them `MESSAGE_ID`, `PRIORITY`, `CODE_FUNC` and `LOGGER`, the
Python module:

| Field | Value |
| --- | --- |
{fields}

## Events

Message ids never change; new events may come. `@FIELD@` stands for the value of that field.

| Event | `MESSAGE_ID` |
| --- | --- |
{ids}
{events}"""


def catalog() -> str:
    """Return the text of units/appliance.catalog."""
    return f"# {_NOTE}\n" + "".join(map(_catalog_entry, JournalEvent))


def journal_page() -> str:
    """Return the text of docs/reference/journal.md."""
    return _PAGE.format(
        note=_NOTE,
        fields="\n".join(f"| `{field}` | {FIELD_MEANINGS[field]} |" for field in JournalField),
        ids="\n".join(f"| {event_name(event)} | `{event}` |" for event in JournalEvent),
        events="".join(map(_section, JournalEvent)),
    )


def _catalog_entry(event: JournalEvent) -> str:
    text = EXPLANATIONS[event]
    lines = [
        "",
        f"-- {event}",
        f"Subject: {text.subject}",
        "Defined-By: appliance",
        f"Documentation: {_INSTALLED_DOCS}/{text.page}",
        "",
        *wrap(text.meaning, _CATALOG_WIDTH),
    ]
    if text.action:
        lines += ["", *wrap(f"What to do: {text.action}", _CATALOG_WIDTH)]
    return "\n".join(lines) + "\n"


def _section(event: JournalEvent) -> str:
    text = EXPLANATIONS[event]
    action = f"\nWhat to do: {text.action}\n" if text.action else ""
    return (
        f"\n### {event_name(event)}\n\n{text.subject}. {text.meaning}\n{action}"
        f"\nMore: [{text.page}](../{text.page}).\n"
    )


GENERATED: Final[Mapping[str, Callable[[], str]]] = {
    "units/appliance.catalog": catalog,
    "docs/reference/journal.md": journal_page,
}
"""Generated files by path from the root of the source, with the function that makes the text."""


def main() -> int:
    """Write all generated files."""
    root = Path(__file__).parents[2]
    for name, text in GENERATED.items():
        (root / name).write_text(text(), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
