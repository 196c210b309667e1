"""Sentences of the gate about missing memory, one for each kind of shortfall; `switch.memory_findings` has preflight's."""

from __future__ import annotations

from appliance.model.amounts import size, size_of_total
from appliance.switch.memory import fit

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from appliance.switch.memory.fit import Shortfall


def sentence_of(short: Shortfall) -> str:
    """Return a shortfall as one sentence for people."""
    return _SENTENCES[short.kind](short)


def _missing(short: Shortfall) -> str:
    which = "a GPU" if short.index < 0 else f"GPU {short.index}"
    return f"{which} is claimed, the driver shows {short.count} in all"


def _unreadable(short: Shortfall) -> str:
    why = short.problem or "its memory cannot be read"
    return f"GPU {short.index}: {why} (need.assume_free = true starts it all the same)"


def _weights(short: Shortfall) -> str:
    one = f"GPU {short.index} has"
    where = one if short.count == 1 else f"{short.count} GPUs together have"
    return (
        f"the model needs at least {size(short.wanted_bytes)}, {where} {size(short.present_bytes)}"
    )


def _ram(short: Shortfall) -> str:
    if short.final:
        wanted, present = size(short.wanted_bytes), size(short.present_bytes)
        return f"needs {wanted} of RAM with its margin, the machine has {present}"
    return f"{size_of_total(short.present_bytes, short.wanted_bytes)} of RAM free"


def _pool(short: Shortfall) -> str:
    where = f"the memory that GPU {short.index} shares with the host"
    if short.final:
        wanted, present = size(short.wanted_bytes), size(short.present_bytes)
        return f"needs {wanted} with its margin in {where}, which is {present}"
    return f"{size_of_total(short.present_bytes, short.wanted_bytes)} free in {where}"


def _vram(short: Shortfall) -> str:
    if short.final:
        wanted, present = size(short.wanted_bytes), size(short.present_bytes)
        return f"needs {wanted} with its margin on GPU {short.index}, which has {present}"
    guess = ", by an estimate" if short.guessed else ""
    free = size_of_total(short.present_bytes, short.wanted_bytes)
    return f"{free} free on GPU {short.index}{guess}"


def _strangers(short: Shortfall) -> str:
    return f"{short.count} process{'es' if short.count > 1 else ''} still on GPU {short.index}"


_SENTENCES: dict[str, Callable[[Shortfall], str]] = {
    fit.MISSING: _missing,
    fit.BROKEN: lambda short: f"GPU {short.index}: {short.problem}",
    fit.UNREADABLE: _unreadable,
    fit.RAM: _ram,
    fit.WEIGHTS: _weights,
    fit.POOL: _pool,
    fit.VRAM: _vram,
    fit.REMAINS: lambda short: f"{short.unit} still has memory on GPU {short.index}",
    fit.IN_USE: lambda s: f"{size(s.present_bytes)} still in use on GPU {s.index}",
    fit.STRANGERS: _strangers,
    fit.OWNERLESS: lambda s: f"{size(s.present_bytes)} without an owner still on GPU {s.index}",
}
