"""GPUs for tests."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from appliance.model.memory import DeviceMemory, Holder

GIB = 1 << 30


def card(
    index: int,
    holders: Sequence[Holder] | None = None,
    *,
    total_bytes: int = 16 * GIB,
    nobodys_bytes: int = 0,
    **changes: object,
) -> DeviceMemory:
    """A GPU on which `holders` and, unlisted, `nobodys_bytes` sit."""
    used = sum(h.held_bytes or 0 for h in holders or ()) + nobodys_bytes
    device = DeviceMemory(
        index=index,
        uuid=f"GPU-{index}",
        name="RTX",
        total_bytes=total_bytes,
        free_bytes=total_bytes - used,
        used_bytes=used,
        holders=holders,
    )
    return replace(device, **changes)  # type: ignore[arg-type]  # a test names real fields


def by_index(*cards: DeviceMemory) -> Mapping[int, DeviceMemory]:
    """Return GPUs by index, as `BoxFacts.devices` has them."""
    return {c.index: c for c in cards}
