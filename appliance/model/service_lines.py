"""Lines that `systemctl status` shows of the daemons that their sockets start, and of each what it has done.

No line has an address, a secret or a text of another machine: anybody on the box may read it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

_MOST_ADDRESSES: Final = 256
"""Addresses of which the last outcome is kept; settings have fewer watches."""


def leaving_line(idle_s: float) -> str:
    """Return the last line of a daemon that leaves: ``nobody asked for 60 s; its socket starts it again``."""
    return f"nobody asked for {idle_s:g} s; its socket starts it again"


@dataclass(slots=True, kw_only=True)
class NotifierTally:
    """Count of what a notifier has sent since its start.

    Attributes:
        targets: Number of the targets.
        fault: Phrase about why there are no targets; empty: the file is right.
    """

    targets: int
    fault: str = ""
    sent: int = 0
    failed: int = 0

    def count(self, *, is_sent: bool) -> None:
        """Count a message, or an attempt that failed."""
        if is_sent:
            self.sent += 1
        else:
            self.failed += 1

    def line(self, troubles: Mapping[str, str]) -> str:
        """Return the line: ``2 targets · 5 sent · 1 failed · phone: status 401``.

        Args:
            troubles: Phrase about the last attempt of each target that failed, by name; empty ones are left out.
        """
        if self.fault:
            return f"no target is known: {self.fault}"
        if not self.targets:
            return "no targets: sudo appliance target add NAME"
        parts = [_counted(self.targets, "target"), f"{self.sent} sent"]
        if self.failed:
            parts.append(f"{self.failed} failed")
        parts += [f"{name}: {text}" for name, text in sorted(troubles.items()) if text]
        return " · ".join(parts)


@dataclass(slots=True, kw_only=True)
class CheckTally:
    """Count of what a checker has asked since its start."""

    checks: int = 0
    _is_up: dict[str, bool] = field(default_factory=dict)
    """Last outcome of each address."""

    def count(self, url: str, *, is_up: bool) -> None:
        """Count a check."""
        self.checks += 1
        if url not in self._is_up and len(self._is_up) >= _MOST_ADDRESSES:
            del self._is_up[next(iter(self._is_up))]
        self._is_up[url] = is_up

    def line(self) -> str:
        """Return the line: ``12 checks of 3 addresses · 1 is not up``."""
        down = sum(not is_up for is_up in self._is_up.values())
        told = f"{down} {'is' if down == 1 else 'are'} not up" if down else "all are up"
        addresses = _counted(len(self._is_up), "address", "addresses")
        return f"{_counted(self.checks, 'check')} of {addresses} · {told}"


def _counted(count: int, one: str, several: str = "") -> str:
    return f"{count} {one if count == 1 else several or f'{one}s'}"
