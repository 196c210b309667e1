"""Pieces of a probe's prompt, so that a real request waits for none of them for long.

llama.cpp evaluates a batch of up to 2048 prompt tokens to its end, also when the connection has
gone: 37 to 705 ms on a CPU, for which a request that arrives meanwhile waits. So a prompt is sent in
growing prefixes, each of which the engine evaluates from where the one before ended, and a probe
gives way between two of them. An engine whose timings do not tell how much of a prompt was cached
gets its prompt in one request.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from appliance.speed.probing.tasks import CHARACTERS_A_TOKEN, PREFILL_TOKENS

MOST_PIECE_S: Final = 0.02
"""Time that an engine may take for a piece: a real request is to wait for less than 50 ms, in which the engine also has to
notice that the piece's connection has gone and to look at its queue."""
FEWEST_PIECE_TOKENS: Final = 2
"""Smaller pieces would be single tokens, of which every answer is made as well."""
_FIRST_TOKENS: Final = 16
MOST_STEP_S: Final = 0.05
"""Time from a request to its first token, or from one token to the next, for which a real request may have to wait."""
_CROWD_SHARE: Final = 0.1
_CROWD_CORES: Final = 0.5
"""CPU time of others beyond which they may be what makes a step long; the appliance's own processes use a fifth of a
core while a probe goes on."""
_ROOM: Final = 0.75
"""Share of the time beyond which a piece of twice the size is not tried."""
_LEAST_KEPT: Final = 0.5
"""Share of the prompt before that is used again: its last word may be cut into other tokens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PieceTimes:
    """Times of one piece, as the engine told them."""

    evaluated_tokens: int
    cached_tokens: int
    prefill_s: float
    ttft_s: float
    """From sending the piece to its only token."""

    @property
    def prompt_tokens(self) -> int:
        return self.evaluated_tokens + self.cached_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class PieceSize:
    """Search for the largest piece that takes no longer than `MOST_PIECE_S`."""

    tokens: int = _FIRST_TOKENS
    """Size of the next piece; when the search has ended, the result."""
    settled: bool = False

    def after(self, piece: PieceTimes) -> "PieceSize":
        """Return the search after a piece of the size `tokens`."""
        if self.settled:
            return self
        if piece.prefill_s > MOST_PIECE_S:
            half = max(FEWEST_PIECE_TOKENS, self.tokens // 2)
            # A size above the first was reached by doubling one that was short enough.
            return PieceSize(
                tokens=half, settled=self.tokens > _FIRST_TOKENS or half == FEWEST_PIECE_TOKENS
            )
        no_more = self.tokens < _FIRST_TOKENS or self.tokens >= PREFILL_TOKENS
        if no_more or piece.prefill_s > _ROOM * MOST_PIECE_S:
            return replace(self, settled=True)
        return PieceSize(tokens=2 * self.tokens)


def piece_end(prompt: str, start: int, tokens: int) -> int:
    """Return the index at which a piece of about so many tokens ends that begins at `start`.

    A piece ends at the end of a word, so that a tokenizer cuts it like the whole prompt; a word that is
    longer than the piece is divided.
    """
    end = start + tokens * CHARACTERS_A_TOKEN
    if end >= len(prompt):
        return len(prompt)
    word_end = max(prompt.rfind(" ", start + 1, end + 1), prompt.rfind("\n", start + 1, end + 1))
    return word_end if word_end > 0 else end


def prefixes(prompt: str, piece_tokens: int) -> Sequence[str]:
    """Return the growing prefixes that go before the request with the whole prompt."""
    found, end = [], 0
    while (end := piece_end(prompt, end, piece_tokens)) < len(prompt):
        found.append(prompt[:end])
    return found


def crowd_text(others_share: float | None, cpus: int) -> str:
    """Return what others use of the CPU, if they may make an engine's steps long; empty: they do not.

    llama.cpp's threads wait for one another hundreds of times in each step. Where one of them has to wait for
    the CPU the step takes many times as long, and hardly less for a smaller piece.

    Args:
        others_share: Share of the box's CPU time that others than the engine use; None: not known.
        cpus: Number of the box's CPUs.
    """
    if others_share is None or others_share < max(_CROWD_SHARE, _CROWD_CORES / cpus):
        return ""
    return f"other programs use {others_share:.0%} of the CPU"


def continues(before: PieceTimes, after: PieceTimes) -> bool:
    """Tell whether an engine evaluated a piece from where the one before ended.

    It begins anew where another request took the place of the prompt meanwhile, or where the
    model's state cannot be cut: that of a recurrent one.
    """
    return after.cached_tokens >= _LEAST_KEPT * before.prompt_tokens
