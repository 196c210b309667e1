"""What the relay counts beside the observer's figures."""

from dataclasses import dataclass


@dataclass(slots=True)
class Counters:
    """Since the start of the process."""

    connections: int = 0
    """Of clients, accepted."""
    requests: int = 0
    """Read to their end."""
    refused: int = 0
    """Answered with an error of ours."""
    malformed: int = 0
    """Refused before they were complete."""
    retried: int = 0
    """Sent again, because the engine had closed a kept connection."""
    cut: int = 0
    """Ended by a drain's deadline."""
    hung_up: int = 0
    """Given up by their clients."""
    buffered_bytes: int = 0
    """Of request bodies, now."""
