"""Alerts: the rules, what a rule finds about a subject, and the messages that follow.

A *finding* is the judgement of one rule on one subject at one look. A *state* is kept for each subject and
rule over all looks; a *transition* is a change of it that is recorded; a *notice* is a transition that
targets get a message about, with one outbox row for each target.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from appliance.model.events import AlertEvent


class Severity(StrEnum):
    """Severity of an alert, most severe first."""

    CRITICAL = "critical"
    WARNING = "warning"
    INFO = "info"


class SubjectKind(StrEnum):
    """Kind of what an alert is about."""

    BOX = "box"
    PROFILE = "profile"
    GPU = "gpu"
    WATCH = "watch"
    """A ``[[watch]]`` entry of the settings."""


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Subject:
    """Profile, GPU, watched service or the box itself."""

    kind: SubjectKind
    name: str = ""
    """Name of a profile or watch, UUID of a GPU; empty for the box."""

    @property
    def text(self) -> str:
        """Return the key of the subject: ``profile:genesis``, or ``box``."""
        return f"{self.kind}:{self.name}" if self.name else self.kind.value


BOX: Final = Subject(kind=SubjectKind.BOX)


class AlertRule(StrEnum):
    """Rule of the watchdog; the value is its key in messages, documents and the runbooks."""

    LIVE_DOWN = "live-down"
    """A profile that should serve does not."""
    NO_PROGRESS = "no-progress"
    """An engine has requests in flight, and neither bytes nor work."""
    CRASH_LOOP = "crash-loop"
    CPU_FALLBACK = "cpu-fallback"
    """A model is not in the memory in which its profile says that it is."""
    SLOW = "slow"
    """A regression of throughput that the detector reports."""
    QUALITY = "quality"
    """Fewer canaries pass than usual."""
    NO_PROBE = "no-probe"
    """No probe has been valid for too long."""
    PATCH = "patch"
    """The command that patches an engine before its start has changed nothing."""
    DRIFT = "drift"
    """An installed unit is not the one that was applied."""
    SWITCH_FAILED = "switch-failed"
    SWITCH_STUCK = "switch-stuck"
    """A phase of an operation has overrun its deadline."""
    EXPOSED = "exposed"
    """A backend, or a process that holds memory of a GPU, listens beyond loopback."""
    FILTER_OFF = "filter-off"
    """The loopback filter of a backend's unit is not enforced by this kernel."""
    FOREIGN_HOLDER = "foreign-holder"
    UNATTRIBUTED = "unattributed-vram"
    """Memory of a GPU is in use that no process accounts for."""
    GPU_LOST = "gpu-lost"
    GPU_ERROR = "gpu-error"
    """An XID error; its tier says what to do."""
    GPU_RECOVERY = "gpu-recovery"
    """The driver itself asks for a reset, a drain or a reboot."""
    ECC = "ecc"
    """Uncorrectable memory errors, or rows that wait to be remapped."""
    THROTTLE = "throttle"
    PCIE = "pcie"
    """A link is narrower than the widest that was seen of it."""
    DRIVER = "driver"
    """Driver and library differ, or the driver does not answer."""
    DISK = "disk"
    SUPERVISOR_DOWN = "supervisor-down"
    GATEWAY_DOWN = "gateway-down"
    WATCH_DOWN = "watch-down"
    """A ``[[watch]]`` entry does not answer."""
    TEST = "test"
    """Test alert of an operator (``appliance alerts test``); no look finds it."""


class Sign(StrEnum):
    """Judgement of a rule at one look."""

    GOOD = "good"
    BAD = "bad"
    UNKNOWN = "unknown"
    """The look shows neither: the state stays as it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Judgement of a rule on a subject at one look.

    The texts of a `GOOD` one may be empty. Texts hold no prompt, no completion and no secret.
    """

    subject: Subject
    rule: AlertRule
    sign: Sign
    fact: str = ""
    """Phrase for the title, after the subject's name: ``slow: 27 tok/s (was 41)``."""
    details: tuple[str, ...] = ()
    """Further sentences, each a line of the message."""
    likely: str = ""
    """Likely cause; empty: not known."""
    command: str = ""
    """Command to type next; empty: the rule's own."""
    since_unix_s: float | None = None
    """Time since which it has been so; None: since the first look that found it."""
    severity: Severity | None = None
    """Severity where it is not the rule's own."""
    is_proven: bool = False
    """Whether this one look is enough to fire, whatever the rule's counts are."""
    is_final: bool = False
    """Whether what the alert is about is gone, so that this one `GOOD` look ends it, flapping or not."""
    over: str = ""
    """Phrase of the end after the subject's name: ``was stopped``; empty: the rule's own."""
    read_s: float | None = None
    """Time of the reading that it judges; two looks at one reading count as one. None: that of the look."""


class AlertPhase(StrEnum):
    """Phase of the state of a subject and rule."""

    OK = "ok"
    PENDING = "pending"
    """Bad at the last look, and not long or often enough."""
    FIRING = "firing"


class TransitionKind(StrEnum):
    """Kind of a recorded change."""

    FIRED = "fired"
    RESOLVED = "resolved"
    REMINDED = "reminded"
    CHANGED = "changed"
    """The severity of a firing alert has risen."""
    FLAPPING = "flapping"
    """The alert comes and goes; one message says so, instead of one each time."""
    ACKED = "acked"
    SILENCED = "silenced"
    UNSILENCED = "unsilenced"
    CANCELLED = "cancelled"
    """The subject was retired or removed while the alert fired: no message says that it is over."""


class Transition(AlertEvent, frozen=True, kw_only=True):
    """Recorded change of an alert."""

    id: int = 0
    kind: TransitionKind
    subject: Subject  # type: ignore[assignment]  # the event has its key
    """Kind and name."""
    rule: AlertRule
    severity: Severity
    delivered: bool = True
    """Whether outbox rows were made for it."""

    def event(self) -> AlertEvent:
        """Return the event that reports the transition."""
        return AlertEvent(**{**self.fields(), "subject": self.subject.text})


class OutboxState(StrEnum):
    """State of an outbox row."""

    QUEUED = "queued"
    SENDING = "sending"
    """Handed to the notifier; after a start of the agent it is queued again."""
    SENT = "sent"
    CANCELLED = "cancelled"
    """No longer true or wanted before it was sent."""
    DEAD = "dead"
    """Given up after seven days, or refused for good."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """Transition that targets get a message about, in one outbox row each; rendered when it is sent."""

    transition: Transition
    not_before_unix_s: float = 0.0
    """Time before which it waits, for the end of quiet hours or of a grouping."""
    is_digest: bool = False
    """Whether it joins others that wait for the same time in one message."""
    group: str = ""
    """Key of the fires of one rule and severity within 10 s, which go in one message; empty: alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """Rendered message, for any service.

    Source of the priorities: docs/reference/alerts.md.
    """

    title: str
    """One line of at most 100 characters."""
    body: str
    severity: Severity
    resolved: bool = False
    sequence_id: str = ""
    """Id that all messages of an episode share, so that a receiver that knows such ids shows one entry;
    letters, digits, ``-`` and ``_``."""
    tags: tuple[str, ...] = ()
    click_url: str = ""
    actions: tuple["MessageAction", ...] = ()
    """Buttons; only where a listener that the phone reaches is declared."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageAction:
    """Button of a message, which sends one POST request."""

    label: str
    url: str


class SendOutcome(StrEnum):
    """Outcome of one attempt to send a message to one target."""

    SENT = "sent"
    RETRY = "retry"
    """Not accepted now, or the outcome is not known: try again later."""
    REFUSED = "refused"
    """Refused for good: the same message would be refused again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SendResult:
    """Answer of the notifier to one attempt."""

    outcome: SendOutcome
    text: str = ""
    """Phrase for people, without an address, a secret or a text of the remote server."""
    retry_after_s: float | None = None
    """Time that the target demands before the next attempt; None: it demands none."""
