"""Thresholds of the regression detector, each with the measurement behind it.

Levels are natural logarithms of ratios: 0.05 is 5 %. Times are minutes. "Public data" are series
from boxes with two and four RTX 3090; "simulated" are the worlds of `tests/bench/probe_world.py`,
which imitate them. `make bench-detector` measures what the thresholds achieve together;
docs/explanation/regression-detection.md has the figures.
"""

from typing import Final

DAY_MIN: Final = 1440.0

# ── Baseline ────────────────────────────────────────────────────────────────
SOAK_MIN: Final = 60.0
"""Wait before the first reading of a baseline: a cold card decodes 4 % faster for up to an hour."""
WARM_MIN: Final = 5.0
"""Readings this soon after a start are ignored: the first requests decode at 0.87 to 1.08 times."""
BASELINE_READINGS: Final = 12
BASELINE_READINGS_PER_PROMPT: Final = 3
"""Fewest readings of a baseline. With a repeat CV of 2 % the median of 12 is known to 0.7 %."""
BASELINE_GAP_MIN: Final = 4.0
FIRST_DAY_READINGS: Final = 48
FIRST_DAY_SHIFT: Final = 0.025
"""Largest correction of the baseline after its first day: it was taken at one hour of a daily
cycle of up to 2 %."""
FIRST_DAY_SLACK: Final = 0.010
"""Extra slack of the slow path until that correction."""
PROMPT_SPAN: Final = 0.03
"""Largest offset of one prompt from the others: 0.3 to 2.5 % in public data."""
PROMPT_GAIN: Final = 0.05
PROMPTS_MOST: Final = 8
"""Prompts that have an offset of their own; further ones count as the mean of them."""

# ── Benign model ────────────────────────────────────────────────────────────
NOISE_FIRST: Final = 0.012
NOISE_LEAST: Final = 0.008
NOISE_MOST: Final = 0.03
"""Bounds of the noise estimate: repeat CV is 0.05 to 1 %, 2.5 % in the worst engine."""
NOISE_GAIN: Final = 0.02
OFFSET_GAIN: Final = 0.02
OFFSET_MOST: Final = 0.015
"""Bound of the adapted level: days differ by 1 to 1.8 %; a slow loss beyond that is not absorbed."""
CYCLE_GAIN: Final = 0.01
CYCLE_MOST: Final = 0.020
"""Bound of the adapted daily cycle; room temperature moves decoding by up to 2 %."""

# ── Sessions ────────────────────────────────────────────────────────────────
SESSION_READINGS: Final = 96
"""Readings, one day of them, after which a session's level counts for the spread of sessions."""
SESSION_RMS: Final = 0.009
SESSION_PRIOR: Final = 6
SESSIONS_KEPT: Final = 12
SESSION_MARGIN: Final = 1.15
SESSION_SCALE_MOST: Final = 2.0
"""Spread of healthy sessions about the baseline: 0.9 % RMS is assumed with the weight of six
sessions (0.4 to 1.5 % in public data); a box whose restarts differ more gets wider thresholds,
at most twice as wide."""

# ── Slow path ───────────────────────────────────────────────────────────────
SLACK: Final = 0.025
SHORTFALL_STEP: Final = 0.03
SHORTFALL_CREDIT: Final = 0.06
SHORTFALL_LIMIT: Final = 0.12
"""Sum of shortfalls beyond the slack: a loss of 5 % reaches the limit within 5 readings, two
contaminated readings never do, because each counts at most 0.03."""
SLOW_LEVEL: Final = 0.0365
"""Smallest loss that the slow path reports. Simulated: no false report in 100 years, and 99 % of
losses of 5 % found within a day."""
RECENT_READINGS: Final = 8

# ── Fast path ───────────────────────────────────────────────────────────────
TRIGGER: Final = 0.05
TRIGGER_NOISES: Final = 3.2
"""Residual that starts a burst: 5 %, or 3.2 times the noise where that is more."""
BURST_READINGS: Final = 4
GOOD_READINGS: Final = 2
BURST_GAP_MIN: Final = 1.5
"""Burst of readings; two good ones at its beginning end it."""
CLEAR: Final = 0.03
"""Reading that speaks against a loss: less than 3 % below what is expected."""
DWELL_MIN: Final = 30.0
"""Length of a low stretch before a report: other load is assumed to last up to 30 min, and an
immediate re-run confirmed 15 of 15 false suspicions in public data. Simulated, 200 years: no report for
such load at 30, six at 29.6 (with 22 instead of 25 min from a restart)."""
DWELL_GAP_MIN: Final = 5.0
DWELL_READINGS: Final = 40
"""Readings after which single good ones no longer begin the dwell anew (flicker for hours)."""
SETTLE_MIN: Final = 2.0
"""Distance of the two low readings that end a dwell: other requests last 45 s, and at most 3 min."""
GOOD_SHARE: Final = 0.4
"""Share of the loss below which a reading of the dwell is good."""
FAST_LEVEL: Final = 0.0425
"""Smallest loss that the fast path reports."""
EXPECTED_DWELL_MIN: Final = 25.0
EXPECTED_BURST_MIN: Final = 12.0
EXPECTED_DROP: Final = 0.05
"""Dwell from a restart or another hint, when no reading since has been good: only a load that began
with the restart itself would look the same."""
LEVEL_READINGS: Final = 6
LEVEL_CHANGE: Final = 0.08
"""Difference of level within a dwell that tells two loads, one after the other, from one loss.
Simulated, 160 years at a dwell of 30 min: no report of such loads with it, eight without."""

# ── After a loss ──────────────────────────────────────────────────────────
RECOVERED: Final = 0.025
RECOVERED_SHARE: Final = 0.35
RECOVERY_DWELL_MIN: Final = 15.0
RECOVERY_GAP_MIN: Final = 4.0
"""Recovery: readings within 2.5 %, or within 35 % of the loss, for 15 min."""
SMALL_DROP: Final = 0.08
SMALL_MIDDLE: Final = 0.45
SMALL_STEP: Final = 0.02
SMALL_LIMIT: Final = 0.30
"""Recovery from a loss below 8 %, near the noise: readings above 45 % of the loss are summed, each
counts at most 2 %, those below are taken off. It takes four hours and more."""
FLAP_MIN: Final = 1440.0
PATIENCE_MOST: Final = 4.0
"""A loss within a day of a recovery doubles the next dwell and the limit of the slow path, up to
four times; three quiet days end that."""

# ── Input ───────────────────────────────────────────────────────────────────
RETRY_MIN: Final = 5.0
GAP_MIN: Final = 90.0
"""Time without a reading after which a burst, dwell or recovery begins anew."""
