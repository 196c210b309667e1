"""Parts of the memory that a model takes, and what the parts would be with one setting changed."""

from collections.abc import Iterator
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Self


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryParts:
    """Parts of an estimate in one kind of memory, in bytes."""

    weights_bytes: int = 0
    """Bytes of the weights, with those of a projector and of a draft model."""
    cache_bytes: int = 0
    """Bytes that grow with the context: keys and values of every token."""
    state_bytes: int = 0
    """Bytes of recurrent states, which have one size however long a request is."""
    compute_bytes: int = 0
    """Bytes of buffers for one batch, and of the libraries."""
    checkpoints_bytes: int = 0
    """Bytes of the checkpoints of a request's state or window, once all of them are taken."""

    @property
    def total_bytes(self) -> int:
        """Return the bytes of all parts together."""
        return sum(count for _, count in self.named())

    def named(self) -> Iterator[tuple[str, int]]:
        """Return each part with its word, in the order of definition."""
        for one in fields(self):
            yield one.name.removesuffix("_bytes"), getattr(self, one.name)

    def plus(self, other: "MemoryParts") -> Self:
        """Return the sums of the parts of both."""
        sums = {f.name: getattr(self, f.name) + getattr(other, f.name) for f in fields(self)}
        return type(self)(**sums)


class SettingChange(StrEnum):
    """Change of a profile that makes its model smaller."""

    HALF_CONTEXT = "half-context"
    QUANTISED_CACHE = "quantised-cache"


@dataclass(frozen=True, slots=True, kw_only=True)
class Alternative:
    """Estimate of the same profile with one change."""

    change: SettingChange
    setting: str
    """Change as the profile would have it: ``ctx = 16384``."""
    vram: MemoryParts
    ram: MemoryParts
