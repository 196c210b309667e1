"""A real GPU, or the reason why there is none; and the figures that were measured on it."""

import ctypes
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from appliance.system.gpus.sampler_client import Device, Reading, Sampler
from appliance.system.gpus.states import EXACT

UNPROVED: Final = "release latency on real hardware stays unproved"
GIB: Final = 1 << 30
MIB: Final = 1 << 20
PATIENCE_S: Final = 60.0
SETTLED_BYTES: Final = 64 * MIB
"""Released means: no more in use than before and this much; the driver's own use moves a little."""
SETTLED_S: Final = 1.0
_HOLDER: Final = Path(__file__).with_name("holder.py")
_FIGURES: Final = pytest.StashKey[dict[str, Any]]()


def read(sampler: Sampler, *, with_processes: bool = False) -> Reading:
    """One reading. Fails when the driver does not answer."""
    sampler.ask(with_processes=with_processes)
    reading = sampler.answer(PATIENCE_S)
    assert reading is not None, "the driver does not answer"
    return reading


@dataclass(slots=True, kw_only=True)
class Gpu:
    """One real device, with a child that reads it."""

    sampler: Sampler
    uuid: str

    def now(self, *, with_processes: bool = False) -> Device:
        """Return the GPU's figures now."""
        reading = read(self.sampler, with_processes=with_processes)
        assert not reading.error_kind, reading.error_text
        return next(d for d in reading.devices if d.uuid == self.uuid)

    def settled(self) -> Device:
        """Return the GPU's figures once they have stayed the same for a second."""
        same_since_s = time.monotonic()
        deadline_s = same_since_s + PATIENCE_S
        before = self.now()
        while time.monotonic() < deadline_s:
            time.sleep(0.1)
            after = self.now()
            if abs(after.used_bytes - before.used_bytes) > MIB:
                before, same_since_s = after, time.monotonic()
            elif time.monotonic() - same_since_s > SETTLED_S:
                return after
        pytest.skip(f"something else uses the GPU: its memory keeps changing; {UNPROVED}")

    @contextmanager
    def held(self, size: int, *, pinned: int = 0) -> Iterator[subprocess.Popen[str]]:
        """A process that holds so much of it, and of pinned main memory.

        Afterwards everything is back: a late release must not be part of the next measurement.
        """
        before = self.now()
        # The device is told by identity: CUDA counts the fastest first, NVML by bus address.
        environment = {**os.environ, "CUDA_VISIBLE_DEVICES": self.uuid}
        argv = [sys.executable, "-I", str(_HOLDER), str(size), str(pinned)]
        with subprocess.Popen(
            argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
        ) as holder:
            try:
                assert holder.stdout is not None
                assert holder.stderr is not None
                if holder.stdout.readline().strip() != str(size):
                    holder.kill()
                    pytest.fail(f"cannot hold {size / GIB:.1f} GiB: {holder.stderr.read()}")
                yield holder
            finally:
                holder.kill()
                self._await_release(before.used_bytes)

    def _await_release(self, used: int) -> None:
        deadline_s = time.monotonic() + PATIENCE_S
        while self.now().used_bytes > used + SETTLED_BYTES and time.monotonic() < deadline_s:
            time.sleep(0.01)


@pytest.fixture(scope="session")
def sampler() -> Iterator[Sampler]:
    """A child that reads NVIDIA's GPUs; skips where there are none."""
    child = Sampler()
    try:
        reason = _nothing_to_test(read(child))
        if reason:
            pytest.skip(f"{reason}; {UNPROVED}")
        yield child
    finally:
        child.close()


def _nothing_to_test(reading: Reading) -> str:
    """Return why there is no GPU to test on; empty when there is one."""
    try:
        ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:  # an AMD card may well have been read
        return "no NVIDIA GPU here"
    if reading.error_kind:
        return f"no NVIDIA GPU here ({reading.error_text})"
    return "" if reading.devices else "no NVIDIA GPU here"


@pytest.fixture
def gpu(sampler: Sampler) -> Gpu:
    """The GPU with the most free memory, of those whose figures are exact."""
    devices = [d for d in read(sampler).devices if d.quality == EXACT]
    if not devices:
        pytest.skip(f"no NVIDIA GPU here whose figures are exact; {UNPROVED}")
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        pytest.skip(f"no CUDA driver library (libcuda.so.1) here; {UNPROVED}")
    best = max(devices, key=lambda d: d.free_bytes)
    if best.free_bytes < 4 * GIB:
        pytest.skip(f"less than 4 GiB is free on every NVIDIA GPU here; {UNPROVED}")
    return Gpu(sampler=sampler, uuid=best.uuid)


class Figures:
    """Figures of a run, printed in one line at its end, and in the XML report."""

    def __init__(self, told: dict[str, Any], record_property: Any) -> None:
        self._told = told
        self._record = record_property

    def add(self, figures: Mapping[str, object]) -> None:
        """Keep some figures."""
        self._told.update(figures)
        for name, value in figures.items():
            self._record(name, value)


@pytest.fixture
def figures(pytestconfig: pytest.Config, record_property: Any) -> Figures:
    """Return where to write the measured figures."""
    return Figures(pytestconfig.stash.setdefault(_FIGURES, {}), record_property)


def milliseconds(seconds: Sequence[float]) -> list[float]:
    """Times for people, in the order in which they were measured."""
    return [round(s * 1000, 1) for s in seconds]


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Tell the figures as one line of JSON."""
    figures = config.stash.get(_FIGURES, {})
    if figures:
        line = json.dumps({**figures, "kernel": platform.release()})
        terminalreporter.write_line(line)
