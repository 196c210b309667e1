"""What the relay counts beside the observer's figures."""

from dataclasses import dataclass


@dataclass(slots=True)
class Counters:
    """Since the start of the process."""

    retried: int = 0
    """Sent again, because the engine had closed a kept connection."""
    hung_up: int = 0
    """Given up by their clients."""
    buffered_bytes: int = 0
    """Of request bodies, now."""
