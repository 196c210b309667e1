"""Wait until a claim and its memory are free, for the gate and for an operator's command.

The first polls are 2 ms apart, later ones 50 ms: a release takes 0.2 to 1.5 s typically. All
times are monotonic: setting the clock does not shorten or prolong a wait.
"""

from __future__ import annotations

import time

from appliance.launch import obstacles
from appliance.switch.memory import fit

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from appliance.launch.gpu_watch import GpuWatch
    from appliance.launch.leases import LeaseLock
    from appliance.launch.obstacles import Obstacle
    from appliance.launch.port import PortWatch
    from appliance.switch.memory.requirement import MemoryRequirement

_FIRST_PAUSE_S = 0.002
_LAST_PAUSE_S = 0.05
_PAUSE_GROWTH = 1.5


class Release:
    """Wait for the release of one claim. It only checks; the caller takes the leases.

    Args:
        leases: Must be free; empty for a caller that holds them already.
        requirement: Memory that must be free, and units that must have ended.
        port: Port that must be free; None: of no engine, or of one without.
        deadline_s: Longest wait.
        on_progress: Called after every check that found an obstacle, with a sentence for people
            and the seconds waited so far. An exception from it ends the wait.
    """

    def __init__(
        self,
        leases: Sequence[LeaseLock],
        requirement: MemoryRequirement,
        *,
        deadline_s: float,
        port: PortWatch | None = None,
        on_progress: Callable[[str, float], None] = lambda _text, _waited_s: None,
    ) -> None:
        self._leases = leases
        self._requirement = requirement
        self._port = port
        self._deadline_s = deadline_s
        self._on_progress = on_progress
        self._groups = obstacles.unit_groups(requirement.own, sorted(requirement.rivals))
        self._gpus: GpuWatch | None = None
        self._now_held: int | None = None
        self.waited_s = 0.0
        """Seconds waited so far."""
        self.first_held: int | None = None
        """Bytes in use on the required memory when it was first found missing; None: it never
        was."""

    @property
    def held(self) -> int:
        """Return those bytes in use at the last check."""
        return self._now_held or 0

    def wait(self) -> Obstacle | None:
        """Return the obstacle that remains at the deadline; None: claim and memory are free.

        Raises OSError.
        """
        started_s = time.monotonic()
        pause_s = _FIRST_PAUSE_S
        kind, since_s = "", started_s
        if self._requirement.uses_gpus:
            from appliance.launch.gpu_watch import GpuWatch  # noqa: PLC0415

            self._gpus = GpuWatch(self._requirement, clock=time.monotonic)
        try:
            while (obstacle := self._check(pause_s)) is not None:
                now_s = time.monotonic()
                self.waited_s = now_s - started_s
                if obstacle.kind != kind:
                    kind, since_s = obstacle.kind, now_s
                if self._is_over(obstacle, now_s - since_s):
                    return obstacle
                self._on_progress(self._sentence(obstacle), self.waited_s)
                time.sleep(pause_s)
                pause_s = min(pause_s * _PAUSE_GROWTH, _LAST_PAUSE_S)
        except BaseException:
            self.close()
            raise
        self.waited_s = time.monotonic() - started_s
        self.close()
        return None

    def close(self) -> None:
        """End the child that reads the GPUs; after a refusal, once the sentence is made."""
        if self._gpus is not None:
            self._gpus.close()

    def change_text(self) -> str:
        """Return what was awaited, ``12.1 → 0.4 GiB in 2.3 s``; empty: neither memory nor a port."""
        port = "" if self._port is None else self._port.change_text()
        if self.first_held is None:
            return port
        from appliance.model.amounts import size_change  # noqa: PLC0415

        memory = f"{size_change(self.first_held, self.held)} in {self.waited_s:.1f} s"
        return f"{memory}, {port}" if port else memory

    def _is_over(self, obstacle: Obstacle, same_kind_s: float) -> bool:
        patience_s = obstacle.patience_s
        impatient = patience_s is not None and same_kind_s >= patience_s
        return impatient or self.waited_s >= self._deadline_s + obstacle.extra_s

    def _check(self, timeout_s: float) -> Obstacle | None:
        """Return the first obstacle, cheapest check first; None: there is none."""
        obstacle = obstacles.held_lease(self._leases, self._amounts) or obstacles.left_over(
            self._groups, self._amounts, own=self._requirement.own
        )
        obstacle = obstacle or self._late(timeout_s)
        return obstacle or (None if self._port is None else self._port.check())

    def _amounts(self) -> dict[int, int]:
        return {} if self._gpus is None else self._gpus.amounts()

    def _late(self, timeout_s: float) -> Obstacle | None:
        if self._gpus is not None:
            obstacle = self._gpus.check(timeout_s)
            self._now_held = self._gpus.held
        elif self._requirement.ram_bytes is not None or self._requirement.peak is not None:
            host = obstacles.read_host()
            obstacle = obstacles.late_ram(self._requirement, host)
            self._now_held = fit.held_bytes(self._requirement, (), host)
        else:
            return None
        if obstacle is not None and obstacle.is_memory and self.first_held is None:
            self.first_held = self._now_held
        return obstacle

    def _sentence(self, obstacle: Obstacle) -> str:
        if not obstacle.is_memory:
            return obstacle.status
        from appliance.model.amounts import size, size_change  # noqa: PLC0415

        first, now = self.first_held or 0, self.held
        held = size(now) if first == now else size_change(first, now)
        return f"waiting for memory: {held} held, {obstacle.status}"
