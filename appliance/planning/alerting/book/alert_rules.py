"""Terms of every alert rule: how often or long it must be bad, and then good, and which marks count.

Looks are 10 s apart. A rule fires after `bad_looks` bad ones of the last `of_looks`, once it has been
bad for `bad_s` without a good look; it resolves after `good_looks` good ones in a row and `good_s`.
Rules of a detector that confirms its losses itself take one look each way.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from appliance.domain.alerts import AlertRule, Severity
from appliance.domain.profile import Mark


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertTerms:
    """Terms of one rule."""

    severity: Severity
    """Severity where the finding has none."""
    bad_looks: int = 1
    of_looks: int = 1
    bad_s: float = 0.0
    good_looks: int = 2
    good_s: float = 0.0
    least_mark: Mark = Mark.LIVE
    """Mark from which on targets are told: LIVE, or STANDBY where the danger does not depend on who
    uses the model. GPUs and the box have no mark and count as live."""

    @property
    def kept_looks(self) -> int:
        """Return the number of looks that the state has to keep."""
        return max(self.of_looks, self.good_looks)


_MINUTES_S: Final = 60.0
_CRITICAL: Final = Severity.CRITICAL
_WARNING: Final = Severity.WARNING

_THREE_OF_FIVE: Final = AlertTerms(severity=_CRITICAL, bad_looks=3, of_looks=5)
_DETECTOR: Final = AlertTerms(severity=_WARNING, good_looks=1)
_CONFIRMED: Final = AlertTerms(severity=_WARNING, bad_looks=2, of_looks=2)
_TEN_MINUTES: Final = AlertTerms(
    severity=_WARNING, good_looks=1, bad_s=10 * _MINUTES_S, good_s=10 * _MINUTES_S
)
_DEVICE: Final = AlertTerms(severity=_CRITICAL, good_looks=3)

ALERT_TERMS: Final[Mapping[AlertRule, AlertTerms]] = {
    AlertRule.LIVE_DOWN: _THREE_OF_FIVE,
    AlertRule.NO_PROGRESS: AlertTerms(severity=_CRITICAL, bad_looks=2, of_looks=3),
    AlertRule.CRASH_LOOP: AlertTerms(severity=_CRITICAL, good_s=15 * _MINUTES_S),
    AlertRule.CPU_FALLBACK: _CONFIRMED,
    AlertRule.SLOW: _DETECTOR,
    AlertRule.QUALITY: _DETECTOR,
    AlertRule.NO_PROBE: _DETECTOR,
    AlertRule.PATCH: _CONFIRMED,
    AlertRule.DRIFT: _CONFIRMED,
    AlertRule.SWITCH_FAILED: AlertTerms(severity=_CRITICAL, good_looks=1),
    AlertRule.SWITCH_STUCK: AlertTerms(severity=_CRITICAL, good_looks=1, least_mark=Mark.STANDBY),
    AlertRule.EXPOSED: AlertTerms(severity=_CRITICAL, least_mark=Mark.STANDBY),
    AlertRule.FILTER_OFF: AlertTerms(
        severity=_WARNING, bad_looks=2, of_looks=2, least_mark=Mark.STANDBY
    ),
    AlertRule.FOREIGN_HOLDER: AlertTerms(
        severity=_WARNING, good_looks=1, bad_s=_MINUTES_S, good_s=_MINUTES_S
    ),
    AlertRule.UNATTRIBUTED: _TEN_MINUTES,
    AlertRule.GPU_LOST: _DEVICE,
    AlertRule.GPU_ERROR: _DEVICE,
    AlertRule.GPU_RECOVERY: _DEVICE,
    AlertRule.ECC: AlertTerms(severity=_WARNING, good_looks=3),
    AlertRule.THROTTLE: _TEN_MINUTES,
    AlertRule.PCIE: _TEN_MINUTES,
    AlertRule.DRIVER: AlertTerms(severity=_CRITICAL, bad_looks=2, of_looks=3),
    AlertRule.DISK: _TEN_MINUTES,
    AlertRule.SUPERVISOR_DOWN: _THREE_OF_FIVE,
    AlertRule.GATEWAY_DOWN: _THREE_OF_FIVE,
    AlertRule.WATCH_DOWN: _THREE_OF_FIVE,
    AlertRule.TEST: _DETECTOR,
}
