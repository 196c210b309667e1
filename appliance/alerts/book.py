"""State that the alert book keeps: of each subject and rule, of silences, planned windows and the clock.

Every dataclass here has a form in JSON (`wire.typed_json`). Times that people read are Unix
times. Spans are measured on the clock of the book (`_s` without `unix`), which nobody sets: it counts
seconds since the book began, those of suspends and of a box that is off included.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from appliance.model.alerts import AlertPhase, AlertRule, Notice, Severity, Subject, Transition
from appliance.wire.alert_requests import PlannedWindow

AlertKey = tuple[Subject, AlertRule]

MOST_STATES: Final = 4096
"""Bound of the states; beyond it those that are ok are forgotten, the oldest first."""
MOST_SILENCES: Final = 200
MOST_WINDOWS: Final = 100
MOST_CHARACTERS: Final = 300
"""Bound of each text of a state."""
MOST_DETAILS: Final = 8


class DeliveryGate(StrEnum):
    """Kind of reason for which no message is sent; the order is that in which reasons are named."""

    MARK = "mark"
    """The mark is standby."""
    INFO = "info"
    SILENCE = "silence"
    WINDOW = "window"
    INHIBITION = "inhibition"
    """A cause that explains it has a message of its own, or is under way."""
    ACK = "ack"
    FLAPPING = "flapping"
    QUIET_HOURS = "quiet-hours"


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertFacts:
    """Facts about an alert, as the book keeps them and as they are shown."""

    alert: str = ""
    """Short id of the episode; empty: there was none, or the subject was retired since."""
    rule: AlertRule
    episode: int = 0
    """Number of the last episode of this subject and rule; 0: there was none."""
    severity: Severity = Severity.WARNING
    """Most severe one of the episode."""
    fact: str = ""
    details: tuple[str, ...] = ()
    likely: str = ""
    command: str = ""
    since_unix_s: float | None = None
    fired_unix_s: float | None = None
    ended_unix_s: float | None = None
    """Time since which its subject is well; None: it fires, or never did."""
    over: str = ""
    """Phrase of its end, such as ``serves again``; empty: it fires, or its state has the rule's own."""
    acked_by: str = ""
    """User that acked it; empty: it is not acked."""
    acked_unix_s: float | None = None
    reason: str = ""
    """Phrase for people about `gate`."""
    flapping: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertState(AlertFacts):
    """State of one rule on one subject."""

    subject: Subject
    phase: AlertPhase = AlertPhase.OK
    told: bool = False
    """Whether a message about the episode was queued: only then one about its end follows."""
    told_severity: Severity | None = None
    told_s: float = 0.0
    due_unix_s: float = 0.0
    """Time until which the message about the fire waits for others of its group."""
    gate: DeliveryGate | None = None
    """Gate that holds messages back now; None: none does."""
    inhibited_by: str = ""
    """Cause that explains it, now or until `inhibitor_gone_s`."""
    inhibitor_gone_s: float | None = None
    flapping_told: bool = False
    changes: tuple[float, ...] = ()
    """Times of the last firings and recoveries."""
    reminders: int = 0
    """Reminders whose time has come."""
    signs: str = ""
    """Last looks, ``b`` or ``g``, the newest last."""
    read_s: float | None = None
    """Time of the reading that the last bad look judged; None: it was of the look itself."""
    signed_s: float = 0.0
    """Time from which the newest of `signs` counts."""
    looked_s: float = 0.0
    same_s: float = 0.0
    """Observed time for which the newest sign has held."""

    @property
    def key(self) -> AlertKey:
        return self.subject, self.rule

    @property
    def is_open(self) -> bool:
        """Whether the episode goes on: it fires, or comes and goes."""
        return self.phase is AlertPhase.FIRING or self.flapping

    @property
    def is_recovering(self) -> bool:
        """Whether the last look was good, and one or more like it end the episode."""
        return self.signs.endswith("g")

    @property
    def is_idle(self) -> bool:
        """Whether nothing is wrong, and has not been for a while."""
        return self.phase is AlertPhase.OK and not self.flapping

    @property
    def is_worth_keeping(self) -> bool:
        """Whether the state is another than that of a subject and rule that are new."""
        return self.episode > 0 or not self.is_idle or "b" in self.signs


@dataclass(frozen=True, slots=True, kw_only=True)
class Silence:
    """Silence of a subject: no message about its alerts is sent until it ends."""

    id: int
    subject: Subject
    until_unix_s: float
    by: str
    reason: str = ""
    begun_unix_s: float = 0.0
    ends_at_start: bool = False
    """Whether the next start of the profile ends it: a stop has made it (`stop_silences`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BookClock:
    """Clocks at the last evaluation."""

    unix_s: float
    monotonic_s: float
    boot_s: float
    boot_id: str = ""
    book_s: float = 0.0
    """Clock of the book."""
    grace_until_s: float = 0.0
    """Time until which bad looks do not count, after a resume or a boot."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertBook:
    """Memory of the alert state machine."""

    states: Mapping[AlertKey, AlertState] = field(default_factory=dict)
    silences: tuple[Silence, ...] = ()
    windows: tuple[PlannedWindow, ...] = ()
    next_alert: int = 1
    next_silence: int = 1
    episode_floor: int = 0
    """Highest episode of the states that were forgotten, so that no episode has its number twice."""
    clock: BookClock | None = None
    """None: nothing was evaluated yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Instant:
    """Moment of an evaluation on three clocks."""

    unix_s: float
    monotonic_s: float
    """CLOCK_MONOTONIC, which stands still in a suspend."""
    boot_s: float
    """CLOCK_BOOTTIME, which goes on; both begin anew with a boot."""
    boot_id: str = ""
    """Kernel's name for this boot; empty: not known, and a clock that went back is a boot."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertPolicy:
    """Settings ``[alerts]`` that the state machine goes by."""

    time_zone: str = ""
    """IANA name of the zone of quiet hours and windows; empty: that of the box."""
    quiet_from: str | None = None
    """Beginning of the quiet hours in local time, ``HH:MM``; None: there are none."""
    quiet_to: str | None = None


@dataclass(slots=True, kw_only=True)
class Evaluation:
    """Result of an evaluation or of an operator's action; all of it is stored in one transaction."""

    book: AlertBook
    transitions: list[Transition] = field(default_factory=list)
    notices: list[Notice] = field(default_factory=list)
    """Notices for the targets; the transition of each is in `transitions` too."""
    cancelled: list[str] = field(default_factory=list)
    """Alerts whose unsent messages are taken back, before the notices of this evaluation are queued."""
    postponed: list[str] = field(default_factory=list)
    """Alerts whose unsent messages are of an earlier boot: they wait until `postponed_unix_s`, by when
    the alerts are judged anew."""
    postponed_unix_s: float = 0.0
