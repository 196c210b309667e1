"""Lines about the parts of a profile's estimated need."""

from __future__ import annotations

from appliance.model.amounts import parts_text
from appliance.wire.json_values import Json, number_in, object_in, objects_in, text_in

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

_PARTS = ("weights", "cache", "state", "compute", "checkpoints")


def need_lines(estimate: Json) -> Iterator[tuple[str, str]]:
    """Return pairs of a label and a text: the parts in each place, now and with a setting changed.

    Args:
        estimate: As `appliance.switch.need.EstimateRow`; empty: there is none.
    """
    if not estimate:
        return
    yield from _labelled("parts", estimate)
    for one in objects_in(estimate, "alternatives"):
        yield from _labelled(text_in(one, "setting"), one)


def _labelled(label: str, placed: Json) -> Iterator[tuple[str, str]]:
    for count, line in enumerate(_places(placed)):
        yield ("" if count else label), line


def _places(placed: Json) -> Iterator[str]:
    gpus = object_in(placed, "gpus")
    shown = [(f"GPU {index}", object_in(gpus, index)) for index in gpus]
    together = [("GPUs", object_in(placed, "vram"))]
    for name, parts in (*(shown or together), ("RAM", object_in(placed, "ram"))):
        counts = {part: int(number_in(parts, f"{part}_bytes") or 0) for part in _PARTS}
        if any(counts.values()):
            yield f"{name} {parts_text(counts)}"
