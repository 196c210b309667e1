"""Memory of the watchdog: bounded whatever is seen."""

import json
from dataclasses import asdict
from typing import Any

import pytest

from appliance.alerts.rules import findings
from appliance.alerts.snapshot import GpuError
from appliance.alerts.watchdog_memory import (
    GpuRecord,
    WatchdogMemory,
    is_spinning,
    remember,
)
from appliance.model.names import SUPERVISOR_UNIT
from appliance.wire.typed_json import from_json
from tests.fakes.looks import CARD, NOW, box_look, gpu_look, later, unit_look


def test_memory_stays_small() -> None:
    """A hundred GPUs with a thousand errors each, three times others, fit into 128 KiB."""
    errors = tuple(GpuError(xid=31, unix_s=NOW - n) for n in range(1000))
    memory = WatchdogMemory()
    for turn in range(3):
        gpus = tuple(gpu_look(uuid=f"GPU-{turn}-{n}", index=n, errors=errors) for n in range(100))
        unit = unit_look(SUPERVISOR_UNIT, restarts=1000 * turn)
        look = later(box_look(gpus=gpus, supervisor=unit), 10.0 * turn)
        found, memory = findings(look, memory)
        assert found
    text = json.dumps(asdict(memory))
    assert len(text) < 128 << 10
    assert from_json(WatchdogMemory, json.loads(text)) == memory


def test_last_errors_are_kept_each_once() -> None:
    """Errors are remembered in the order of their times; the oldest are dropped."""
    errors = tuple(GpuError(xid=31, unix_s=NOW - n) for n in range(20))
    look = box_look(gpus=(gpu_look(errors=errors),))
    memory = remember(later(look, 10), remember(look, WatchdogMemory()))
    assert memory.gpus[0].errors == errors[15::-1]


def test_gpu_keeps_what_it_no_longer_tells() -> None:
    """Name, counters and widths stay while a GPU tells less."""
    bare = gpu_look(name="", uncorrected_errors=None, pcie_width=None, power_w=None)
    before = remember(box_look(), WatchdogMemory())
    after = remember(later(box_look(gpus=(bare,)), 30), before)
    (record,) = after.gpus
    assert (record.uuid, record.name, record.uncorrected_errors) == (CARD, "RTX 3090", 0)
    assert (record.widest_pcie, record.most_power_w) == (16, 300.0)


@pytest.mark.parametrize(
    ("busy_share", "width", "power_w"), [(0.5, 16, 300.0), (0.49, None, None), (None, None, None)]
)
def test_link_and_power_are_kept_from_half_load_on(
    busy_share: float | None, width: int | None, power_w: float | None
) -> None:
    """Width and power of a GPU that rests are no measure."""
    look = box_look(gpus=(gpu_look(busy_share=busy_share),))
    (record,) = remember(look, WatchdogMemory()).gpus
    assert (record.widest_pcie, record.most_power_w) == (width, power_w)


@pytest.mark.parametrize(
    ("changes", "spins"),
    [
        ({}, True),
        ({"busy_share": 0.89}, False),
        ({"memory_busy_share": 0.011}, False),
        ({"power_w": 180.0}, False),
        ({"power_w": None}, False),
    ],
)
def test_signature_of_a_hang_has_three_figures(changes: dict[str, Any], *, spins: bool) -> None:
    """A GPU spins that is 90 % busy, moves no memory and draws less than 60 % of its most power."""
    values = {"busy_share": 0.9, "memory_busy_share": 0.01, "power_w": 179.0}
    record = GpuRecord(uuid=CARD, index=0, most_power_w=300.0)
    assert is_spinning(gpu_look(**(values | changes)), record) is spins


def test_two_looks_at_one_time_are_of_one_boot() -> None:
    """A clock that stands still has not begun anew."""
    first = remember(box_look(supervisor=unit_look(SUPERVISOR_UNIT)), WatchdogMemory())
    second = remember(box_look(supervisor=unit_look(SUPERVISOR_UNIT, restarts=3)), first)
    assert second.restarts()[SUPERVISOR_UNIT] == 3
