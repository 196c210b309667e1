"""States of a box: readings of its GPUs, figures of gateway and engines, damaged files.

In all of them aeon is committed and serves.
"""

from dataclasses import replace
from typing import Final

from tests.pins.appliance_code import (
    DeviceMemory,
    EngineLoad,
    GpuMemory,
    GpuState,
    GroupMemory,
    Holder,
    ObservedPeak,
    Quality,
    unit_of,
)
from tests.pins.status_box import GIB, StatusBox, state


def _holder(pid: int, gib: float | None, comm: str, user: str, unit: str = "") -> Holder:
    held = None if gib is None else int(gib * GIB)
    return Holder(pid=pid, held_bytes=held, comm=comm, user=user, unit=unit)


def _device(index: int, *holders: Holder, used_gib: float = 0, **more: object) -> DeviceMemory:
    total, used = 16 * GIB, int(used_gib * GIB)
    device = DeviceMemory(
        index=index,
        uuid=f"GPU-{index}",
        name="RTX 5060 Ti",
        total_bytes=total,
        free_bytes=total - used,
        used_bytes=used,
        holders=holders,
    )
    return replace(device, **more)  # type: ignore[arg-type]


def _gpus(*devices: DeviceMemory, state_: GpuState = GpuState.OK, reason: str = "") -> GpuMemory:
    return GpuMemory(devices=devices, state=state_, reason=reason or None)


def _read_gpus(box: StatusBox, memory: GpuMemory) -> None:
    box.fakes.host.gpu_memory = memory


# --- memory -------------------------------------------------------------------------------


def _owners(box: StatusBox) -> tuple[Holder, Holder]:
    del box
    unit = unit_of("aeon")
    return (
        _holder(41, 13.5, "vllm", "apl-aeon", unit),
        _holder(42, 13.25, "vllm", "apl-aeon", unit),
    )


@state("GPUs")
async def _(box: StatusBox) -> None:
    one, two = _owners(box)
    _read_gpus(box, _gpus(_device(0, one, used_gib=13.75), _device(1, two, used_gib=13.5)))
    box.fakes.host.groups["aeon"] = GroupMemory(
        resident_bytes=6 * GIB, locked_bytes=GIB, pinned_bytes=5 * GIB, pids=(41, 42)
    )
    await box.drive(30)


@state("peaks")
async def _(box: StatusBox) -> None:
    _read_gpus(box, _gpus(_device(0), _device(1)))
    kept = box.fakes.peaks.kept
    kept["aeon"] = ObservedPeak(
        fingerprint="fingerprint of aeon",
        gpus={"GPU-0": 14 * GIB, "GPU-1": 13 * GIB},
        ram_bytes=5 * GIB,
        seen_unix_s=900.0,
    )
    kept["mini"] = ObservedPeak(fingerprint="of another", ram_bytes=GIB, seen_unix_s=900.0)


@state("GPUs held by others")
async def _(box: StatusBox) -> None:
    one, two = _owners(box)
    others = [_holder(100 + n, n / 4, f"p{n}", "ana", "session-3.scope") for n in range(1, 6)]
    gone = _holder(99, None, "", "")
    _read_gpus(
        box,
        _gpus(_device(0, one, *others, used_gib=15.9), _device(1, two, gone, used_gib=15.5)),
    )


@state("GPUs, one lost")
async def _(box: StatusBox) -> None:
    lost = replace(
        _device(1), state=GpuState.LOST, problem="fell off the bus", free_bytes=0, total_bytes=0
    )
    reason = "GPU 1 fell off the bus: reboot"
    _read_gpus(box, _gpus(_device(0), lost, state_=GpuState.LOST, reason=reason))


for _state, _reason in (
    (GpuState.HUNG, "the driver has not answered for 20 s"),
    (GpuState.MISMATCH, "driver and library differ: reboot"),
    (GpuState.NO_DRIVER, "the driver is not loaded"),
    (GpuState.NO_LIBRARY, "no libnvidia-ml.so.1"),
    (GpuState.DEVICE, "unknown error"),
    (GpuState.READER, "the reader ended with status 1"),
):

    async def _unreadable(box: StatusBox, of: GpuState = _state, reason: str = _reason) -> None:
        _read_gpus(box, _gpus(state_=of, reason=reason))

    state(f"GPUs, {_state}")(_unreadable)


@state("GPUs of other kinds")
async def _(box: StatusBox) -> None:
    opaque = replace(_device(0, used_gib=4), quality=Quality.OPAQUE, problem="MIG is on")
    unified = replace(_device(1, used_gib=4), quality=Quality.UNIFIED, holders=None)
    _read_gpus(box, _gpus(opaque, unified))


@state("GPUs as they were")
async def _(box: StatusBox) -> None:
    _read_gpus(box, _gpus(_device(0), _device(1)))
    await box.supervised.document()
    box.fakes.host.driver_answers.clear()
    box.fakes.systemd.now_s += 100
    box.is_slow = True


# --- the gateway, engines and files -------------------------------------------------------

_FIGURES: Final = {
    "requests": 120,
    "in_flight": 3,
    "queued": 2,
    "quiet_s": 1.5,
    "errors": 4,
    "gone": 1,
    "retried": 1,
    "bytes": 123_456,
    "output_tokens": 20_000,
    "decoded_tokens": 19_000,
    "decode_s": 460.5,
    "prompt_tokens": 90_000,
    "cached_tokens": 60_000,
    "tok_s": 41.25,
    "wait_ms": {"p50": 1.0, "p99": 20.5},
    "ttft_ms": {"p50": 180.0, "p99": 900.0},
    "gap_ms": {"p50": 24.0, "p99": 60.0},
}


@state("traffic")
async def _(box: StatusBox) -> None:
    box.fakes.gateway.figures = {"aeon": dict(_FIGURES), "gone": {"requests": 1}}
    box.fakes.backend.loads["aeon"] = EngineLoad(running=3, queued=2, kv_cache=0.25)
    await box.supervised.document()  # engines are asked once somebody looks


@state("gateway listens")
async def _(box: StatusBox) -> None:
    box.fakes.gateway.listening = {
        "addresses": ["127.0.0.1:8010", "192.0.2.5:8010"],
        "absent": ["wg0"],
        "tls": "waiting",
        "keys": 2,
        "closed": False,
        "engine_keys": ["aeon"],
    }


@state("gateway away")
async def _(box: StatusBox) -> None:
    box.fakes.gateway.away = True


@state("stalled")
async def _(box: StatusBox) -> None:
    fakes = box.fakes
    fakes.gateway.figures = {"aeon": {"requests": 5, "in_flight": 3, "quiet_s": 130.0}}
    for _look in range(14):
        fakes.units.used_s["aeon"] = 7.0
        await box.supervised.stalls.turn()
        await box.drive(10)


@state("files damaged")
async def _(box: StatusBox) -> None:
    box.profiles.damage = "manifest.json is damaged: sudo appliance apply; its copy is used"
    box.supervised.gateway_damage = (
        "gateway.json is damaged: sudo appliance apply; its copy is used"
    )
