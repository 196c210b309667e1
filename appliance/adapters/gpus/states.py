"""The words of the program that reads the GPUs: what it can say is wrong, and what figures are worth."""

# Why nothing can be read.
NO_LIBRARY = "no-library"
NO_DRIVER = "no-driver"
MISMATCH = "mismatch"
DEVICE = "device"
"""The driver or one device fails in another way; the text says how."""
LOST = "lost"
"""The device fell off the bus."""
HUNG = "hung"
"""Never said by the program itself: its parent concludes it from silence."""
READER = "reader"
"""Likewise: the program could not be run, died or answered nonsense, which says nothing about
the GPUs. A new one may read them at once."""

# What a device's figures are worth.
EXACT = "exact"
UNIFIED = "unified"
"""The device uses the host's memory; the figures are the host's."""
NUMA = "numa"
"""The device's memory is a NUMA node, which keeps pages after their process has ended."""
OPAQUE = "opaque"
"""The figures mean nothing; the problem says why."""


class DriverError(Exception):
    """What the driver cannot do for us: `kind` and a sentence."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind
