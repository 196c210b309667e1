"""Memory need of a backend, and the source that the figure comes from. All sizes are in bytes.

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

from dataclasses import dataclass
from enum import StrEnum


class Source(StrEnum):
    """Source of the figure of a need. The order of definition is the order of preference."""

    OBSERVED = "observed"
    DECLARED = "declared"
    UTILISATION = "utilisation"
    ESTIMATE = "estimate"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """Estimate from the headers of a model's files, over all GPUs together."""

    vram_bytes: int
    """Bytes on the GPUs; an upper bound where the architecture allows only that, see `notes`."""
    least_vram_bytes: int
    """Bytes of the weights on the GPUs alone: with less than this the model can never run."""
    ram_bytes: int
    """Bytes that stay in main memory, or pass through it, while the model runs."""
    notes: tuple[str, ...] = ()
    """Phrases that say what the figure leaves out or rounds up."""
