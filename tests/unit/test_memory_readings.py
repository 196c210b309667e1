"""Readings of memory: pure types, and the host's from the kernel."""

from pathlib import Path

import pytest

from appliance.adapters.host_memory import read_host_memory
from appliance.domain.errors import ApplianceError
from appliance.domain.memory import DeviceMemory, GpuMemory, Holder


def device(*held: int | None, used: int = 10) -> DeviceMemory:
    holders = [Holder(pid=i, held_bytes=b, comm="", user="", unit="") for i, b in enumerate(held)]
    return DeviceMemory(
        index=0,
        uuid="GPU-0",
        name="x",
        total_bytes=100,
        free_bytes=90,
        used_bytes=used,
        holders=holders,
    )


@pytest.mark.parametrize(
    ("held", "rest"), [((), 10), ((4, 6), 0), ((3, 4), 3), ((30,), 0), ((3, None), None)]
)
def test_the_rest_is_what_nobody_accounts_for(held: tuple[int | None, ...], rest: int) -> None:
    """Used bytes without those of the listed processes; unknown when one of them is unknown."""
    assert device(*held).unattributed_bytes == rest


def test_a_machine_without_gpus_has_no_totals() -> None:
    """A reading with a reason has no devices."""
    assert GpuMemory(reason="no driver").totals() == {}


def test_this_machine_has_memory() -> None:
    """The kernel's figures are read in bytes."""
    memory = read_host_memory()
    assert 64 << 20 < memory.available_bytes <= memory.total_bytes


@pytest.mark.parametrize(
    "text", ["", "MemTotal: 5 kB\n", "MemTotal:\nMemAvailable: 1 kB\n", "MemTotal: x kB\n", "\xff"]
)
def test_what_the_kernel_would_never_say_is_an_error(tmp_path: Path, text: str) -> None:
    """A table without the two figures is our error, not a foreign one."""
    path = tmp_path / "meminfo"
    path.write_text(text, "latin-1")
    with pytest.raises(ApplianceError, match="size of the memory"):
        read_host_memory(path)
