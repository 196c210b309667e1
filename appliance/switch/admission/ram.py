"""Check that main memory is enough for all profiles that will run together.

The gate compares one backend with the memory that is available. The preflight's own rule is that the
needs of all that run together must fit into the machine, estimates and the share of an engine on the
CPU included: a profile that runs may still take memory up to its need.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from appliance.model.amounts import size
from appliance.model.observed import Observed
from appliance.model.operations import Goal
from appliance.model.profile import Catalogue
from appliance.model.wording import joined
from appliance.switch.admission.findings import (
    GIB,
    BoxFacts,
    PreflightFinding,
    fine,
    refuse,
    warn,
)
from appliance.switch.memory.fit import Shortfall
from appliance.switch.need import BoxNeed, Source

_NOTHING: Final[Mapping[str, Shortfall]] = {}


def staying(goal: Goal, catalogue: Catalogue, observed: Observed) -> tuple[str, ...]:
    """Return the profiles that run now and that `goal` neither stops nor starts."""
    changed = {*goal.stop, *goal.start}
    return tuple(n for n in observed.busy() if n in catalogue and n not in changed)


def ram_findings(
    goal: Goal,
    needs: Mapping[str, BoxNeed],
    together: tuple[str, ...],
    box: BoxFacts,
    lacking: Mapping[str, Shortfall] = _NOTHING,
) -> Iterator[PreflightFinding]:
    """Return findings against starting `goal` beside the profiles that stay.

    Args:
        goal: What is to run.
        needs: Of every profile in `together`.
        together: What runs afterwards, the started ones first.
        box: Facts about the host.
        lacking: What the gate would find missing of main memory, by started profile.
    """
    if not goal.start:
        return
    known = {n: needs[n] for n in together if needs[n].ram_bytes}
    certain = _sum(n for n in known.values() if n.ram_source is not Source.ESTIMATE)
    whole = _sum(known.values())
    have = f"{box.ram_total_bytes / GIB:.1f}"
    who = f"{joined(together)} {'need' if together[1:] else 'needs'}"
    shared = " together" if together[1:] else ""
    if certain > box.ram_total_bytes:
        yield refuse(f"{who} ≈{certain / GIB:.1f} GiB of RAM{shared}, the box has {have}")
    elif lacking:
        yield from (refuse(_sentence(n, s, box)) for n, s in lacking.items())
    elif whole > box.ram_total_bytes:
        text = f"{who} ≈{whole / GIB:.1f} GiB of RAM{shared} ({Source.ESTIMATE})"
        yield warn(f"{text}, the box has {have}: it may not fit", Source.ESTIMATE, whole)
    elif whole:
        sources = sorted({n.ram_source for n in known.values()}, key=list(Source).index)
        label = joined([str(source) for source in sources])
        text = f"needs ≈{whole / GIB:.1f} GiB of RAM ({label}), {have} total"
        yield fine(text, sources[-1], whole)


def _sum(needs: Iterable[BoxNeed]) -> int:
    return sum(n.ram_bytes or 0 for n in needs)


def _sentence(name: str, short: Shortfall, box: BoxFacts) -> str:
    present = f"{short.present_bytes / GIB:.1f}"
    if not short.final:
        wanted = f"{short.wanted_bytes / GIB:.1f}"
        return (
            f"{name} needs ≈{wanted} GiB of RAM free, {present} GiB would be free:"
            " stop the programs that hold the rest"
        )
    need = f"{(short.wanted_bytes - box.margin_bytes) / GIB:.1f}"
    reserve = f"of which {size(box.margin_bytes)} stay free"
    return f"{name} needs ≈{need} GiB of RAM, the box has {present}, {reserve}"
