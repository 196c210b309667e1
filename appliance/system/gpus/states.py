"""Kinds of faults, and qualities of figures, that the sampler of the GPUs reports.

Apart from both sides: the sampler, its parent and each driver's reader spell them alike.
"""

# Kinds of faults.
NO_LIBRARY = "no-library"
NO_DRIVER = "no-driver"
MISMATCH = "mismatch"
DEVICE = "device"
"""Fault: the driver or one device fails in another way; the text says how."""
LOST = "lost"
"""Fault: the device fell off the bus."""
HUNG = "hung"
"""Fault: the driver hangs, as the sampler's parent concludes from silence."""
READER = "reader"
"""Fault: the sampler could not be run, died or wrote an invalid answer, which says nothing about
the GPUs. A new sampler may read them at once."""

# Qualities of a device's figures.
EXACT = "exact"
UNIFIED = "unified"
"""Quality: the device uses the host's memory; the figures are the host's."""
NUMA = "numa"
"""Quality: the device's memory is a NUMA node, which keeps pages after their process has ended."""
OPAQUE = "opaque"
"""Quality: the figures mean nothing; the problem says why."""


class DriverError(Exception):
    """Failure of the driver or a device: its kind, and a sentence."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind
