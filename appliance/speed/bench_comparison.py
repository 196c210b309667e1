"""Comparison of profiles that were measured in turns (ABBA), and the verdict on two of them.

A sweep has one block of each profile, and each second sweep has the other order: what drifts slowly
(heat, other load) meets both of a pair alike. One pair gives one value, the mean of the log
ratios of its prompts, since levels differ more between sessions than within one (1 to 1.8 % against
0.05 to 1 %: docs/explanation/regression-detection.md). The interval is Student's, over the pairs.

Speed alone wins nothing: both answer the same greedy requests. A profile wins if its answers
are those of the other as often as each profile repeats its own.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import exp, log, sqrt
from typing import Final

Answers = Mapping[str, str]
"""Answers of one block by the name of their prompt."""
_T_95: Final = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228,
    2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086,
    2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
)  # fmt: skip
"""Student's t for an interval of 95 % with 1, 2, … degrees of freedom."""
_T_95_MORE: Final = 2.042
"""For more degrees of freedom: at most 4 % wider than the exact one."""
_FEWEST_PAIRS: Final = 2
_MOST_SHORTFALL: Final = 0.1
"""Share of answers by which two profiles may differ more than each from itself. A deterministic
engine that breaks one of five answers breaks it in every block: a fifth."""


class Winner(StrEnum):
    """Outcome of a comparison."""

    FIRST = "first"
    SECOND = "second"
    NEITHER = "neither"


@dataclass(frozen=True, slots=True, kw_only=True)
class RatioInterval:
    """Ratio of the second profile's rate to the first one's, with its 95 % confidence interval."""

    ratio: float
    low: float | None
    """None: fewer than two pairs, which give no interval; the same for `high`."""
    high: float | None
    pairs: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """Shares of greedy answers that were the same, word for word; None: not compared."""

    between: float | None
    """Of the two profiles."""
    own: float | None
    """Of a profile with itself in another block; the lower of the two."""

    @property
    def holds(self) -> bool:
        """Return whether the two answer alike, as far as each answers alike itself."""
        if self.between is None:
            return False
        return self.between >= (1.0 if self.own is None else self.own) - _MOST_SHORTFALL


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonVerdict:
    """Verdict, and its reason for people."""

    winner: Winner
    why: str


def turns(count: int, runs: int) -> Sequence[int]:
    """Return the numbers of the profiles, block by block: 0 1 1 0, then 1 0 0 1, and so on.

    Args:
        count: Number of profiles; one alone has a single block with all runs.
        runs: Runs, of two sweeps each.
    """
    if count == 1:
        return [0]
    there, back = list(range(count)), list(reversed(range(count)))
    return [
        profile
        for run in range(runs)
        for sweep in ((there, back) if run % 2 == 0 else (back, there))
        for profile in sweep
    ]


def block_pairs(order: Sequence[int], other: int) -> Sequence[tuple[int, int]]:
    """Return for each sweep the number of the block of profile 0, and that of profile `other`."""
    blocks = {profile: [at for at, p in enumerate(order) if p == profile] for profile in (0, other)}
    return list(zip(blocks[0], blocks[other], strict=False))


def pair_log_ratio(
    first: Mapping[str, float | None], second: Mapping[str, float | None]
) -> float | None:
    """Return the mean log ratio over the prompts that both blocks have a rate of; None: none."""
    logs = [
        log(other / rate) for name, rate in first.items() if rate and (other := second.get(name))
    ]
    return sum(logs) / len(logs) if logs else None


def ratio_interval(log_ratios: Sequence[float]) -> RatioInterval | None:
    """Return the ratio of the rates, with its interval; None: there is no pair."""
    count = len(log_ratios)
    if not count:
        return None
    mean = sum(log_ratios) / count
    if count < _FEWEST_PAIRS:
        return RatioInterval(ratio=exp(mean), low=None, high=None, pairs=count)
    variance = sum((value - mean) ** 2 for value in log_ratios) / (count - 1)
    t = _T_95[count - 2] if count - 2 < len(_T_95) else _T_95_MORE
    half = t * sqrt(variance / count)
    return RatioInterval(ratio=exp(mean), low=exp(mean - half), high=exp(mean + half), pairs=count)


def agreement(first: Sequence[Answers], second: Sequence[Answers]) -> Agreement:
    """Return how far the answers of two profiles agree, block by block; an empty one never does."""
    own = [share for some in (first, second) if (share := _same(some, some, own=True)) is not None]
    return Agreement(
        between=_same(first, second, own=False),
        own=min(own) if own else None,
    )


def _same(some: Sequence[Answers], others: Sequence[Answers], *, own: bool) -> float | None:
    alike = [
        bool(answer) and other.get(name) == answer
        for number, one in enumerate(some)
        for other in (others[number + 1 :] if own else others)
        for name, answer in one.items()
    ]
    return sum(alike) / len(alike) if alike else None


def comparison_verdict(
    names: tuple[str, str], interval: RatioInterval | None, alike: Agreement
) -> ComparisonVerdict:
    """Return which of two profiles is better, if either is.

    Args:
        names: Names of the first and the second profile.
        interval: Ratio of the second one's rate to the first one's; None: not measured.
        alike: Agreement of their greedy answers.
    """
    if interval is None:
        return _neither("nothing was measured of at least one of them")
    if interval.low is None or interval.high is None:
        return _neither("one pair of blocks shows no difference: more --runs")
    if interval.low <= 1 <= interval.high:
        return _neither("the interval includes no difference at all")
    winner = Winner.SECOND if interval.ratio > 1 else Winner.FIRST
    faster = names[1] if winner is Winner.SECOND else names[0]
    if alike.between is None:
        return _neither(f"{faster} is faster, but no answers were compared")
    if not alike.holds:
        own = "" if alike.own is None else f", where each repeats {alike.own:.0%} of its own"
        return _neither(
            f"{faster} is faster, but only {alike.between:.0%} of the answers are the same{own}"
        )
    return ComparisonVerdict(winner=winner, why=f"{faster} is faster and answers the same")


def _neither(why: str) -> ComparisonVerdict:
    return ComparisonVerdict(winner=Winner.NEITHER, why=why)
