"""How much memory a backend takes, and how anybody knows. All sizes are in bytes.

===============  ===========================================================================
source           where the figure comes from, best first
===============  ===========================================================================
``observed``     the most that this very configuration was seen to hold, and an allowance
``declared``     ``need`` in its profile
``utilisation``  the share of each GPU, or of RAM, that the engine takes whatever the model is
``estimate``     the headers of the model's files
``unknown``      nothing says it
===============  ===========================================================================
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

ALLOWANCE_SHARE: Final = 0.05
ALLOWANCE_BYTES: Final = 512 << 20
"""Added to an observed peak, whichever of the two is more: no two runs are alike."""


class Source(StrEnum):
    """Where a need is known from. The order of definition is the order of preference."""

    OBSERVED = "observed"
    DECLARED = "declared"
    UTILISATION = "utilisation"
    ESTIMATE = "estimate"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """What the headers of a model's files say, over all GPUs together."""

    vram_bytes: int
    """An upper bound where the architecture allows only that; see `notes`."""
    least_vram_bytes: int
    """The weights on the GPUs alone: with less than this it can never run."""
    ram_bytes: int
    """What stays in, or goes through, main memory while it runs."""
    notes: tuple[str, ...] = ()
    """What the figure leaves out or rounds up, a phrase each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Peak:
    """The most that a backend was seen to hold."""

    fingerprint: str
    """Of the configuration that ran (`Applied.fingerprint`); another one tells nothing."""
    gpus: Mapping[str, int] = field(default_factory=dict)
    """Bytes by the UUID of the GPU."""
    ram_bytes: int | None = None
    """Resident memory of all its processes together; None: not seen."""
    seen_unix_s: float = 0.0


def with_allowance(peak_bytes: int) -> int:
    """What to keep free for a backend that was seen to hold `peak_bytes`."""
    return peak_bytes + max(int(peak_bytes * ALLOWANCE_SHARE), ALLOWANCE_BYTES)
