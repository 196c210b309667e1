"""Tables of the alert state machine: terms, inhibitions, what each gate holds, and the times.

| Gate | fired | changed | reminded | flapping |
| --- | --- | --- | --- | --- |
| mark (standby), silence, window, inhibition | held | held | held | held |
| ack | held | told, and the ack ends | held | held |
| flapping | is told as flapping | held | held | told once |
| info | held | | | held |
| quiet hours, unless critical | held | | | held |

An empty cell cannot be: what grew worse is no longer of no urgency, and only critical alerts remind. Of a
recovery targets are told if they were told of the fire, whatever gates apply: after quiet hours if it is
not critical, and at the end of flapping.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from appliance.alerts.book.alert_rules import ALERT_TERMS, AlertTerms
from appliance.alerts.book.alert_state import DeliveryGate
from appliance.alerts.book.book_clock import GRACE_S
from appliance.alerts.book.inhibition import INHIBITIONS, LINGER_S, Inhibition
from appliance.model.alerts import AlertRule, TransitionKind

_HOUR_S: Final = 3600.0
_NEWS: Final = frozenset(
    {
        TransitionKind.FIRED,
        TransitionKind.CHANGED,
        TransitionKind.REMINDED,
        TransitionKind.FLAPPING,
    }
)

_MESSAGES: Final = frozenset({TransitionKind.FIRED, TransitionKind.FLAPPING})

HOLDS: Final[Mapping[DeliveryGate, frozenset[TransitionKind]]] = {
    DeliveryGate.MARK: _NEWS,
    DeliveryGate.INFO: _MESSAGES,
    DeliveryGate.SILENCE: _NEWS,
    DeliveryGate.WINDOW: _NEWS,
    DeliveryGate.INHIBITION: _NEWS,
    DeliveryGate.ACK: _NEWS - {TransitionKind.CHANGED},
    DeliveryGate.FLAPPING: frozenset({TransitionKind.CHANGED, TransitionKind.REMINDED}),
    DeliveryGate.QUIET_HOURS: _MESSAGES,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertTables:
    """Tables that the state machine goes by; tests take entries out to see that each one matters."""

    terms: Mapping[AlertRule, AlertTerms]
    inhibitions: tuple[Inhibition, ...]
    holds: Mapping[DeliveryGate, frozenset[TransitionKind]]
    reminders_s: tuple[float, ...] = (1 * _HOUR_S, 4 * _HOUR_S, 12 * _HOUR_S)
    """Times of the first reminders after the message; the last of them is also the time between later
    ones."""
    flapping_changes: int = 4
    """Firings and recoveries within `flapping_s` that are flapping."""
    flapping_s: float = 1800.0
    grouping_s: float = 10.0
    """Time for which a fire waits for others of its rule and severity."""
    digest_waits_s: float = 15.0
    """Time from the end of quiet hours to the digest, in which a look finds what still fires."""
    grace_s: float = GRACE_S
    linger_s: float = LINGER_S


STANDARD_TABLES: Final = AlertTables(terms=ALERT_TERMS, inhibitions=INHIBITIONS, holds=HOLDS)
