"""Events of the health agent as its socket and the API tell them: measurements, and changes of alerts.

Their words are text, because the other side may be of a release that knows more of them. The types that the
agent itself works with narrow them: `model.measurements.MeasurementEvent` and `model.alerts.Transition`. This
module is apart from those since every command that asks the agent imports it.
"""

from appliance.model.record import Record


class MeasuredEvent(Record, frozen=True):
    """Event `measured`: it follows from measurements of a profile."""

    id: int
    """Number in the store; 0: it is in no store."""
    unix_s: float
    profile: str
    """Empty: the box."""
    kind: str
    """As `appliance.model.measurements.EventKind`."""
    series: str | None = None
    change: float | None = None
    """Relative to the baseline: -0.34 is 34 % slower; None: not about a rate."""
    cause: str | None = None
    """Key of the likely cause (`appliance.speed.causes`); None: unknown, or not about a rate."""
    text: str = ""
    """One sentence for people."""
    rate: float | None = None
    """Tokens a second at the event, of decoding with the usual number of tokens a step; None: not
    about a rate, as for the next two."""
    baseline: float | None = None
    """Rate that it is compared with."""
    since_unix_s: float | None = None
    """Beginning of what the event reports; None: the event itself."""
    likely: str = ""
    """Likely cause in words; empty: unknown, or not about a loss."""


class AlertEvent(Record, frozen=True):
    """Event `alert`: a transition of an alert."""

    id: int
    """Number in the store; 0: it is in no store."""
    unix_s: float
    kind: str
    """As `appliance.model.alerts.TransitionKind`."""
    alert: str
    """Short id of the alert, such as `A17`, which its episode keeps from firing to resolving."""
    subject: str
    """Key, as `profile:genesis` or `box`."""
    rule: str
    episode: int
    severity: str
    fact: str = ""
    details: tuple[str, ...] = ()
    likely: str = ""
    command: str = ""
    since_unix_s: float | None = None
    over: str = ""
    """Phrase of its end, as of `appliance.model.alerts.Finding`; empty: the rule's own, or it goes on."""
    ended_unix_s: float | None = None
    """Time since which its subject is well; None: it is not."""
    by: str = ""
    """User that acked or silenced; empty: no user made the change."""
    reason: str = ""
    """Reason why no message is sent (`silenced`, `inhibited by switch-stuck`), or that of a silence."""
    delivered: bool = False
    """Whether messages about it were queued."""
