"""Poller beside a starting engine: it sends READY when the engine answers its health check.

Until then the poller extends systemd's start time-out only while there is progress: so that
time-out *is* the deadline on no progress, also at boot and after a crash, when no supervisor of
ours runs.
"""

from __future__ import annotations

import os
import select
import time

from appliance.launch.program import INFO, WARNING, say
from appliance.launch.start.endpoint import EngineEndpoint
from appliance.launch.start.progress import ProgressSampler
from appliance.model.amounts import size
from appliance.system.kernel.processes import control_group
from appliance.wire.sd_notify import barrier, extend, load_status, notify, ready_status

_QUICK_PAUSE_S = 0.005
_QUICK_FOR_S = 1.0
"""Time of frequent polls: a small model answers within a second; later 50 ms more or less are not
noticed."""
_PAUSE_S = 0.05
_LONGEST_PAUSE_S = 0.5
_PAUSE_SHARE = 0.05
_SAMPLE_EVERY_S = 1.0
_QUIET_S = 10.0
"""Time without progress from which the status text says so."""
_HTTP_OK = 200
_HTTP_LOADING = 503
"""HTTP status of engines that load."""


def pause_s(elapsed_s: float, *, answered: bool) -> float:
    """Return the seconds until the next health check.

    An engine that answers, but is not ready, is polled ever more rarely: it may log a line for
    each check, which must never look like its progress. Two such lines a second stay below what
    counts (`appliance.launch.start.progress`).
    """
    if elapsed_s < _QUICK_FOR_S:
        return _QUICK_PAUSE_S
    if not answered:
        return _PAUSE_S
    return min(max(_PAUSE_S, elapsed_s * _PAUSE_SHARE), _LONGEST_PAUSE_S)


class ReadinessPoller:
    """Poller of one engine, until it is ready or has ended.

    Args:
        endpoint: Of the engine.
        main: A pidfd of the engine.
        started_s: Beginning of the start, monotonic seconds.
        no_progress_s: Longest time without progress.
    """

    def __init__(
        self, endpoint: EngineEndpoint, *, main: int, started_s: float, no_progress_s: float
    ) -> None:
        self._endpoint = endpoint
        self._started_s = started_s
        self._no_progress_s = no_progress_s
        self._group = control_group("self")
        self._progress = ProgressSampler(self._group, without=os.getpid())
        self._ended = select.poll()
        self._ended.register(main, select.POLLIN)
        self._problem = ""
        self._answered = False

    def run(self) -> bool:
        """Poll until the engine is ready; False: the engine ended before."""
        notify(f"STATUS={load_status()}", extend(self._no_progress_s))
        next_sample_s = self._started_s + _SAMPLE_EVERY_S
        while not self._is_ready():
            now_s = time.monotonic()
            if now_s >= next_sample_s:
                next_sample_s = now_s + _SAMPLE_EVERY_S
                self._report()
            pause = pause_s(now_s - self._started_s, answered=self._answered)
            if self._ended.poll(pause * 1000):
                return False
        text = ready_status(f"on {self._endpoint}, ready after {self._elapsed_s():.2f} s")
        notify("READY=1", f"STATUS={text}")
        barrier()
        say(INFO, text)
        return True

    def _elapsed_s(self) -> float:
        return time.monotonic() - self._started_s

    def _is_ready(self) -> bool:
        status = self._endpoint.health_status()
        self._answered = status is not None
        if status == _HTTP_OK and self._endpoint.belongs_to(self._group):
            return True
        if status == _HTTP_OK:
            self._log_problem(
                f"{self._endpoint} is answered by a process that is not this backend's"
            )
        elif status is not None and status != _HTTP_LOADING:
            self._log_problem(f"{self._endpoint.health} answers {status}")
        else:
            self._problem = ""
        return False

    def _log_problem(self, problem: str) -> None:
        if problem != self._problem:
            self._problem = problem
            say(WARNING, problem)

    def _report(self) -> None:
        moved = self._progress.sample()
        quiet_s = time.monotonic() - self._progress.moved_at_s
        parts = [
            f"{size(self._progress.resident_bytes)} resident",
            f"{self._elapsed_s():.0f} s",
            f"no progress for {quiet_s:.0f} s" if quiet_s >= _QUIET_S else "",
            self._problem,
        ]
        details = ", ".join(filter(None, parts))
        notify(f"STATUS={load_status(details)}", *([extend(self._no_progress_s)] if moved else []))
