"""Kinds of faults and qualities of figures that the sampler of the GPUs reports."""

# Kinds of faults.
NO_LIBRARY = "no-library"
NO_DRIVER = "no-driver"
MISMATCH = "mismatch"
DEVICE = "device"
"""The driver or one device fails in another way; the text says how."""
LOST = "lost"
"""The device fell off the bus."""
HUNG = "hung"
"""Concluded by the sampler's parent from silence."""
READER = "reader"
"""Likewise: the sampler could not be run, died or answered nonsense, which says nothing about the
GPUs. A new one may read them at once."""

# Qualities of a device's figures.
EXACT = "exact"
UNIFIED = "unified"
"""The device uses the host's memory; the figures are the host's."""
NUMA = "numa"
"""The device's memory is a NUMA node, which keeps pages after their process has ended."""
OPAQUE = "opaque"
"""The figures mean nothing; the problem says why."""


class DriverError(Exception):
    """Failure of the driver or a device: its kind, and a sentence."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind
