"""Check that the GPUs of a profile are there and can be read; each failure has its own sentence."""

from collections.abc import Iterable, Iterator
from typing import Final

from appliance.model.memory import GpuState, Quality
from appliance.model.profile import Applied
from appliance.switch.admission.findings import BoxFacts, PreflightFinding, refuse, warn
from appliance.switch.need import used_gpus

NOWHERE: Final = frozenset({GpuState.NO_LIBRARY, GpuState.NO_DRIVER})
"""States of a machine that has no GPU that could be used."""


def readiness(applied: Applied, box: BoxFacts) -> tuple[PreflightFinding, ...]:
    """Return findings on the GPUs of `applied`; after a refusal no figure means anything."""
    if box.gpu_state is GpuState.MISMATCH:
        return (refuse("driver/library mismatch after an upgrade: reboot needed"),)
    if box.gpu_state is GpuState.HUNG:
        text = f"{box.gpu_error or 'the GPU driver hangs'}: wait, or reboot (appliance status)"
        return (refuse(text),)
    if failure := reader_failure(box):
        return (refuse(failure),)
    if box.gpu_state in NOWHERE or (box.gpu_error is not None and not box.gpu_total_bytes):
        error = box.gpu_error or box.gpu_state
        return (
            refuse(
                f"{applied.name} needs a GPU, and none can be read: {error}{_remedy(applied, box)}"
            ),
        )
    return tuple(_device_findings(applied, box))


def _remedy(applied: Applied, box: BoxFacts) -> str:
    """Return what to do where no GPU is to be expected; empty: a driver is there and fails."""
    if box.gpu_state not in NOWHERE and box.gpu_error is not None:
        return ""
    file = applied.source_path.rpartition("/")[2]
    shared = ", beside shared = true" if not applied.claim.devices else ""
    return f"; to run it on the CPU: gpus = []{shared} in {file}, then sudo appliance apply"


def reader_failure(box: BoxFacts) -> str:
    """Return the refusal while the program that reads the GPUs fails; empty: it does not fail."""
    if box.gpu_state is not GpuState.READER:
        return ""
    return f"{box.gpu_error or 'no reading of the GPUs'}; a new reading may succeed: try again"


def _device_findings(applied: Applied, box: BoxFacts) -> Iterator[PreflightFinding]:
    present = sorted({*box.gpu_total_bytes, *box.devices})
    if not present:
        yield refuse(f"{applied.name} needs a GPU, the box has none{_remedy(applied, box)}")
        return
    used = used_gpus(applied, present)
    if missing := sorted(set(used) - set(present)):
        yield refuse(f"{applied.name} claims GPU {missing[0]}, the box has {len(present)}")
        return
    yield from _broken(used, box)
    yield from _opaque(applied, used, box)


def _broken(used: Iterable[int], box: BoxFacts) -> Iterator[PreflightFinding]:
    for index in used:
        device = box.devices.get(index)
        if device is not None and device.state is not GpuState.OK:
            yield refuse(f"GPU {index} cannot be used: {device.problem or device.state}")


def _opaque(applied: Applied, used: Iterable[int], box: BoxFacts) -> Iterator[PreflightFinding]:
    for index in used:
        device = box.devices.get(index)
        if device is None or device.quality is not Quality.OPAQUE:
            continue
        if device.state is not GpuState.OK:
            continue
        why = f" ({device.problem})" if device.problem else ""
        if applied.assume_free:
            yield warn(f"memory of GPU {index} cannot be read{why}: it is assumed to be free")
        else:
            file = applied.source_path.rpartition("/")[2]
            yield refuse(
                f"memory of GPU {index} cannot be read{why}: to start {applied.name} all the same, set"
                f" need.assume_free = true in {file}, then sudo appliance apply"
            )
