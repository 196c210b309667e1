"""What can stand between a backend and its start, and the looks that the gate takes at it."""

from __future__ import annotations

from functools import partial

from appliance.launch import memory
from appliance.launch.processes import Holder, holders_of_file, largest, read

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from appliance.launch.gpus import Reading, Sampler
    from appliance.launch.leases import Lease

LEASE_GRACE_S = 3.0
"""A gate or a wrapper that looks at the same moment is gone in milliseconds, a killed rival in
seconds; one that serves on is no reason to wait for the memory's deadline."""
_DRIVER_GRACE_S = 5.0
"""For a driver that is just being loaded."""
_HOLDERS_TIMEOUT_S = 3.0
_RESPAWN_PAUSE_S = 0.5
_LARGE_BYTES = 256 << 20
_NAMED_HOLDERS = 3


class Obstacle:
    """One thing in the way.

    Args:
        status: What to show while waiting.
        patience_s: Give up after this long; None: after the gate's deadline.
        rival: Another process owns the claim, or the machine is too small: a restart by
            systemd would not help. False: memory is late, and a restart would.
        explain: The sentence for a refusal; looks for the holders, which takes a while.
    """

    __slots__ = ("explain", "patience_s", "rival", "status")

    def __init__(
        self,
        status: str,
        *,
        explain: Callable[[], str],
        patience_s: float | None = None,
        rival: bool = False,
    ) -> None:
        self.status = status
        self.explain = explain
        self.patience_s = patience_s
        self.rival = rival


def held_lease(leases: Sequence[Lease]) -> Obstacle | None:
    """The first lease that another process holds. Raises OSError."""
    for lease in leases:
        lease.create()
        if not lease.is_free():
            return Obstacle(
                f"waiting for {lease.name}: another process holds it",
                explain=partial(lease_sentence, lease),
                patience_s=LEASE_GRACE_S,
                rival=True,
            )
    return None


def lease_sentence(lease: Lease) -> str:
    """Who holds a lease, as one sentence."""
    holders = _joined(holders_of_file(lease.path)) or "a process that cannot be seen from here"
    return f"{lease.name} is held by {holders}"


def late_ram(want: memory.Want) -> Obstacle | None:
    """Host memory that has not come back."""
    if want.ram is None:
        return None
    values = _meminfo()
    short = memory.ram_shortfall(want, available=values["MemAvailable"], total=values["MemTotal"])
    if short is None:
        return None

    def explain() -> str:
        large = _joined(largest(_NAMED_HOLDERS, at_least_bytes=_LARGE_BYTES))
        return f"{short.text}; the largest processes are {large}" if large else short.text

    return _memory_obstacle(short, explain)


def _memory_obstacle(short: memory.Shortfall, explain: Callable[[], str]) -> Obstacle:
    if short.final:
        return Obstacle(short.text, explain=lambda: short.text, patience_s=0.0, rival=True)
    return Obstacle(f"waiting for memory: {short.text}", explain=explain)


def _meminfo() -> dict[str, int]:
    values: dict[str, int] = {}
    for line in read("/proc/meminfo").splitlines():
        name, _, rest = line.partition(":")
        if name in {"MemTotal", "MemAvailable"}:
            values[name] = int(rest.split()[0]) << 10
    return values


def _joined(holders: Sequence[Holder]) -> str:
    return ", ".join(map(str, holders))


class GpuWatch:
    """Looks at the claimed GPUs, never longer than it is told to.

    Args:
        want: What the backend needs.
        clock: Monotonic seconds.
    """

    def __init__(self, want: memory.Want, *, clock: Callable[[], float]) -> None:
        self._want = want
        self._clock = clock
        self._sampler: Sampler | None = None
        self._not_before = 0.0
        self._last = Obstacle(
            "waiting for the NVIDIA driver to answer",
            explain=lambda: "the NVIDIA driver does not answer",
        )
        self._agreeing = 0
        self.start()

    def start(self) -> None:
        """Start the child that reads them, unless one runs; it loads NVML in the background."""
        if self._sampler is None and self._clock() >= self._not_before:
            from appliance.launch.gpus import Sampler  # noqa: PLC0415

            self._sampler = Sampler()
            self._ask()

    def _ask(self) -> None:
        if self._sampler is not None:
            self._sampler.ask(with_processes=self._want.vram is None)

    def look(self, timeout_s: float) -> Obstacle | None:
        """What is in the way, waiting at most `timeout_s` for the driver; None: nothing."""
        self.start()
        reading = None if self._sampler is None else self._sampler.answer(timeout_s)
        if reading is None:  # The request stays open: the next look goes on waiting for it.
            return self._last
        obstacle = self._broken(reading) if reading.error_kind else self._judged(reading)
        if obstacle is not None:
            self._last = obstacle
        return obstacle

    def _judged(self, reading: Reading) -> Obstacle | None:
        short = memory.vram_shortfall(self._want, reading.devices)
        self._ask()
        if short is not None:
            self._agreeing = 0
            return _memory_obstacle(short, lambda: self._late_sentence(short.text))
        self._agreeing += 1
        exact = all(d.quality == "exact" for d in memory.claimed(self._want, reading.devices))
        # One exact reading proves it; another kind has to be confirmed once.
        if exact or self._agreeing > 1:
            return None
        text = "waiting for memory: a second reading has to agree"
        return Obstacle(text, explain=lambda: "the readings of the GPU's memory disagree")

    def _broken(self, reading: Reading) -> Obstacle:
        from appliance.launch.sampler import DEVICE, NO_DRIVER  # noqa: PLC0415

        self.close()
        self._not_before = self._clock() + _RESPAWN_PAUSE_S
        patience_s = {NO_DRIVER: _DRIVER_GRACE_S, DEVICE: None}.get(reading.error_kind, 0.0)
        sentence = f"GPUs are claimed, but {reading.error_text}"
        return Obstacle(sentence, explain=lambda: sentence, patience_s=patience_s)

    def _late_sentence(self, text: str) -> str:
        """The shortfall with every holder, and what no visible process accounts for."""
        reading = self._with_processes()
        if reading is None or reading.error_kind:
            return f"{text}; the driver does not say who holds it"
        parts: list[str] = []
        for device in memory.claimed(self._want, reading.devices):
            processes = device.processes or []
            holders = [Holder(p.pid, held_bytes=p.held_bytes) for p in processes]
            sizes = [p.held_bytes for p in processes if p.held_bytes is not None]
            rest = _rest(device.used - sum(sizes)) if len(sizes) == len(processes) else ""
            if named := ", ".join(filter(None, (_joined(holders), rest))):
                parts.append(f"GPU {device.index} is held by {named}")
        return "; ".join((text, *parts))

    def _with_processes(self) -> Reading | None:
        if self._sampler is None:
            return None
        pending = self._sampler.answer(_HOLDERS_TIMEOUT_S)  # every look leaves a request open
        if pending is None or pending.error_kind:
            return pending
        self._sampler.ask(with_processes=True)
        return self._sampler.answer(_HOLDERS_TIMEOUT_S)

    def close(self) -> None:
        """End the child, whatever it hangs in."""
        if self._sampler is not None:
            self._sampler.close()
            self._sampler = None


def _rest(unattributed_bytes: int) -> str:
    from appliance.launch.sizes import size  # noqa: PLC0415

    # Below this it is the driver's own bookkeeping.
    if unattributed_bytes < _LARGE_BYTES:
        return ""
    return f"{size(unattributed_bytes)} that no visible process accounts for"
