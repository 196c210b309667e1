"""The status document's account of memory."""

from dataclasses import replace

import msgspec

from appliance.model.memory import (
    DeviceMemory,
    GpuMemory,
    GpuState,
    GroupMemory,
    Holder,
    HostMemory,
)
from appliance.model.names import unit_of
from appliance.model.profile import Need
from appliance.model.status import ProfileMemoryRow
from appliance.status.memory_rows import memory_row, need_row, need_rows, profile_memory
from appliance.switch.ledger import Ledger, ledger_of
from appliance.switch.memory.peak import ObservedPeak
from appliance.switch.need import resolve
from tests.fakes.profiles import applied, catalogue

GIB = 1 << 30
RAM = HostMemory(total_bytes=32 * GIB, available_bytes=20 * GIB)
BOX = catalogue(applied("genesis", "gpu-all", need=Need(vram_bytes=9 * GIB)), applied("mini"))
CARD = DeviceMemory(
    index=0,
    uuid="GPU-0",
    name="card",
    total_bytes=24 * GIB,
    free_bytes=12 * GIB,
    used_bytes=12 * GIB,
    holders=[
        Holder(pid=7, held_bytes=11 * GIB, comm="vllm", user="u", unit=unit_of("genesis")),
    ],
)
GROUP = GroupMemory(resident_bytes=3 * GIB, locked_bytes=1, pinned_bytes=2, pids=(7,))


def sample(*devices: DeviceMemory) -> Ledger:
    groups = {"genesis": GROUP, "mini": GROUP}
    return ledger_of(GpuMemory(devices=devices), groups, now_unix_s=5.0, now_s=3.0)


def test_row_of_the_machine() -> None:
    """Each GPU with its state, quality and holders, and how old the sample is."""
    row = memory_row(
        RAM, sample(CARD, replace(CARD, index=1, uuid="GPU-1", holders=None)), now_s=9.0
    )
    assert msgspec.to_builtins(row) == {
        "ram_total_bytes": 32 * GIB,
        "ram_available_bytes": 20 * GIB,
        "gpus": [
            {
                "index": 0,
                "uuid": "GPU-0",
                "name": "card",
                "state": "ok",
                "quality": "exact",
                "total_bytes": 24 * GIB,
                "free_bytes": 12 * GIB,
                "used_bytes": 12 * GIB,
                "holders": [
                    {
                        "profile": "genesis",
                        "unit": "appliance-backend-genesis.service",
                        "user": "u",
                        "comm": "vllm",
                        "pid": 7,
                        "held_bytes": 11 * GIB,
                    }
                ],
                "unattributed_bytes": GIB,
            },
            {
                "index": 1,
                "uuid": "GPU-1",
                "name": "card",
                "state": "ok",
                "quality": "exact",
                "total_bytes": 24 * GIB,
                "free_bytes": 12 * GIB,
                "used_bytes": 12 * GIB,
                "holders": None,
                "unattributed_bytes": None,
            },
        ],
        "gpu_state": "ok",
        "gpu_error": None,
        "sampled_unix_s": 5.0,
        "sampled_age_s": 6.0,
    }


def test_gpus_that_nobody_asked_or_that_cannot_be_read() -> None:
    """Not asked is null; not read has a state and a reason."""
    assert memory_row(RAM, None, now_s=9.0).gpu_state is None
    assert memory_row(RAM, sample(), now_s=9.0).gpu_state is None
    hung = GpuMemory(state=GpuState.HUNG, reason="the GPU driver hangs")
    row = memory_row(RAM, ledger_of(hung, {}, now_unix_s=5.0, now_s=3.0), now_s=9.0)
    assert (row.gpu_state, row.gpu_error, row.gpus) == ("hung", "the GPU driver hangs", [])


def test_row_of_a_profile() -> None:
    """A row has the memory that a running profile holds, and its need with the source."""
    peak = ObservedPeak(
        fingerprint=BOX["genesis"].fingerprint, gpus={"GPU-0": 11 * GIB}, ram_bytes=GIB
    )
    needs = need_rows(BOX, [CARD], {"genesis": peak}, RAM.total_bytes)
    rows = profile_memory(BOX, sample(CARD), needs)
    assert rows["genesis"] == ProfileMemoryRow(
        vram_bytes=11 * GIB,
        ram_bytes=3 * GIB,
        locked_bytes=1,
        need=need_row(resolve(BOX["genesis"], peak, [CARD])),
    )
    assert rows["mini"].vram_bytes is None


def test_row_of_a_profile_that_does_not_run() -> None:
    """A profile that does not run holds nothing that is known, and still has its declared need."""
    idle = ledger_of(GpuMemory(), {}, now_unix_s=5.0, now_s=3.0)
    for ledger in (None, idle):
        row = profile_memory(BOX, ledger, need_rows(BOX, (), {}, 0))["genesis"]
        assert (row.vram_bytes, row.ram_bytes) == (None, None)
        assert row.need == need_row(resolve(BOX["genesis"], None, ()))
