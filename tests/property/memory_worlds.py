"""Random boxes before a switch, and as the gate finds them once the old model has ended."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Final

from appliance.model.memory import (
    DeviceMemory,
    GpuState,
    GroupMemory,
    Holder,
    HostMemory,
    Quality,
)
from appliance.model.names import unit_of
from appliance.model.profile import Applied, Estimate, Need
from appliance.switch.memory.peak import ObservedPeak
from tests.fakes.profiles import applied

GIB: Final = 1 << 30
MIB: Final = 1 << 20
TOTALS: Final = (8 * GIB, 16 * GIB, 24 * GIB, 24 * GIB, 24 * GIB, 80 * GIB)
RESERVED: Final = (0, 0, 0, 300 * MIB, 600 * MIB, 1500 * MIB)
MARGINS: Final = (None, None, None, 0, 2 * GIB)
NAME: Final = "target"
RIVAL: Final = "rival"
NEIGHBOUR: Final = "neighbour"
STRANGERS: Final = ("", "user@1000.service", "session-3.scope")

RAM: Final = "main memory"


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """Use of one GPU by one process."""

    pid: int
    unit: str
    held_bytes: int
    compute: bool = True
    told: bool = True
    """False: the driver does not say how much it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """One GPU and all that is true of it."""

    index: int
    total_bytes: int = 24 * GIB
    reserved_bytes: int = 0
    quality: Quality = Quality.EXACT
    state: GpuState = GpuState.OK
    uses: tuple[Use, ...] = ()
    nobodys_bytes: int = 0
    """Bytes of no listed process."""
    freed_bytes: int = 0
    """Part of these bytes that is freed with the leaving profiles."""
    lists: bool = True
    """The driver has a list of processes."""

    def device(self, free_ram_bytes: int, *, leaving: frozenset[str], blind: bool) -> DeviceMemory:
        """A reading of it, without the units that are `leaving`.

        Args:
            free_ram_bytes: What is available on the host at that moment.
            leaving: Units that have ended.
            blind: The reader may not see who holds what.
        """
        stay = [u for u in self.uses if u.unit not in leaving]
        held = sum(u.held_bytes for u in stay) + self.nobodys_bytes
        used = held - (self.freed_bytes if leaving else 0)
        free = self.total_bytes - self.reserved_bytes - used
        if self.quality is Quality.UNIFIED:
            free, used = free_ram_bytes, self.total_bytes - free_ram_bytes
        if self.state is not GpuState.OK:
            free = used = 0
        holders = tuple(
            Holder(
                pid=u.pid,
                held_bytes=u.held_bytes if u.told else None,
                comm="python3",
                user="ana",
                unit=u.unit,
                compute=u.compute,
            )
            for u in stay
            if not blind
        )
        works = self.state is GpuState.OK
        return DeviceMemory(
            index=self.index,
            uuid=f"GPU-{self.index}",
            name="Pretend",
            total_bytes=self.total_bytes if works else 0,
            free_bytes=free,
            used_bytes=used,
            reserved_bytes=self.reserved_bytes if works else 0,
            quality=self.quality,
            state=self.state,
            problem="" if works else "it fell off the bus",
            holders=holders if self.lists else None,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """A box on which `profile` shall be started in place of what leaves."""

    profile: Applied
    cards: tuple[Card, ...] = ()
    running: Mapping[str, Applied]
    """Other profiles that run."""
    stop: tuple[str, ...] = ()
    """Profiles of `running` that the switch stops."""
    restarted: bool = False
    """The profile runs itself, and is started anew."""
    peak: ObservedPeak | None = None
    margin_bytes: int | None = None
    ram_total_bytes: int = 32 * GIB
    ram_available_bytes: int = 28 * GIB
    ram_freed_bytes: int = 0
    """Main memory that comes back with what leaves."""
    groups: Mapping[str, GroupMemory]
    blind: bool = False
    """The supervisor may not see who holds memory of a GPU, as on AMD's; the gate may."""
    uncertain: frozenset[str | int] = frozenset()
    """Places whose free memory cannot be known beforehand: indexes, or `RAM`."""

    @property
    def leaving(self) -> frozenset[str]:
        """Units that end."""
        own = (NAME,) if self.restarted else ()
        return frozenset(map(unit_of, (*self.stop, *own)))

    def before(self) -> Sequence[DeviceMemory]:
        """Return the readings of the supervisor."""
        ram = self.ram_available_bytes
        none: frozenset[str] = frozenset()
        return [c.device(ram, leaving=none, blind=self.blind) for c in self.cards]

    def after(self) -> tuple[Sequence[DeviceMemory], HostMemory]:
        """Return the readings of the gate."""
        ram = min(self.ram_total_bytes, self.ram_available_bytes + self.ram_freed_bytes)
        devices = [c.device(ram, leaving=self.leaving, blind=False) for c in self.cards]
        return devices, HostMemory(total_bytes=self.ram_total_bytes, available_bytes=ram)


def world(seed: int) -> World:
    """The world of a seed."""
    draw = Random(seed)  # noqa: S311 - the same worlds in every run
    cards = _cards(draw)
    gpus = _gpus(draw, cards)
    profile = _profile(draw, cards, gpus)
    conflicts = (RIVAL,) if draw.random() < 0.7 else ()
    profile = replace(profile, conflicts=conflicts)
    rival = replace(applied(RIVAL, *(("gpu-all",) if gpus else ("cpu",))), conflicts=(NAME,))
    neighbour = replace(
        applied(NEIGHBOUR), gpus=(0,) if cards else (), need=Need(ram_bytes=_maybe(draw, 8 * GIB))
    )
    running = {
        name: p
        for name, p, odds in ((RIVAL, rival, 0.7), (NEIGHBOUR, neighbour, 0.2))
        if draw.random() < odds and (name != RIVAL or conflicts)
    }
    found = World(
        profile=profile,
        running=running,
        stop=tuple(n for n in running if n == RIVAL),
        restarted=draw.random() < 0.1,
        margin_bytes=draw.choice(MARGINS),
        blind=draw.random() < 0.03,
        groups={},
        peak=_peak(draw, profile, cards),
    )
    return _filled_ram(draw, _filled(draw, found, cards))


def _cards(draw: Random) -> tuple[Card, ...]:
    count = draw.choice((0, 1, 1, 1, 2, 2, 3, 4))
    alike, total, reserved = draw.random() < 0.7, draw.choice(TOTALS), draw.choice(RESERVED)
    if count == 1 and draw.random() < 0.15:
        return (Card(index=0, total_bytes=32 * GIB, quality=Quality.UNIFIED),)
    return tuple(
        Card(
            index=index,
            total_bytes=total if alike else draw.choice(TOTALS),
            reserved_bytes=reserved if alike else draw.choice(RESERVED),
            quality=draw.choices((Quality.EXACT, Quality.NUMA, Quality.OPAQUE), weights=(90, 5, 5))[
                0
            ],
            state=GpuState.LOST if draw.random() < 0.01 else GpuState.OK,
            lists=draw.random() < 0.95,
        )
        for index in range(count)
    )


def _gpus(draw: Random, cards: Sequence[Card]) -> tuple[str, ...]:
    """Devices that the target claims."""
    if not cards or draw.random() < 0.1:
        return ()
    if draw.random() < 0.5:
        return ("gpu-all",)
    indexes = [c.index for c in cards]
    if draw.random() < 0.02:
        indexes.append(len(cards))
    chosen = draw.sample(indexes, draw.randint(1, len(indexes)))
    return tuple(f"gpu-{i}" for i in chosen)


def _maybe(draw: Random, most: int, odds: float = 0.5) -> int | None:
    return draw.randrange(most) if draw.random() < odds else None


def _profile(draw: Random, cards: Sequence[Card], gpus: tuple[str, ...]) -> Applied:
    used = [c for c in cards if gpus == ("gpu-all",) or f"gpu-{c.index}" in gpus]
    whole = sum(c.total_bytes for c in used) or 32 * GIB
    bound = int(whole * draw.choice((draw.uniform(0.1, 0.9), draw.uniform(0.85, 1.3))))
    estimate = Estimate(
        vram_bytes=bound,
        least_vram_bytes=int(bound * draw.uniform(0.3, 1.0)),
        ram_bytes=draw.randrange(8 * GIB),
    )
    return replace(
        applied(NAME, *(gpus or ("cpu",))),
        need=Need(
            vram_bytes=int(whole * draw.uniform(0.1, 1.1)) if draw.random() < 0.4 else None,
            ram_bytes=_maybe(draw, 34 * GIB, 0.3),
        ),
        vram_fraction=round(draw.uniform(0.3, 1.0), draw.choice((2, 9)))
        if draw.random() < 0.4
        else None,
        ram_fraction=draw.uniform(0.3, 1.0) if not gpus and draw.random() < 0.2 else None,
        estimate=estimate if draw.random() < 0.5 else None,
        gpu_split=_split(draw, len(used)),
        assume_free=draw.random() < 0.3,
        fingerprint="" if draw.random() < 0.03 else "f",
    )


def _split(draw: Random, gpus: int) -> tuple[float, ...]:
    if draw.random() < 0.5:
        return ()
    count = draw.randint(1, gpus + 1)
    return tuple(
        draw.choice((0.0, 1.0, 1.0, 3.0, round(draw.uniform(0, 9), 8))) for _ in range(count)
    )


def _peak(draw: Random, profile: Applied, cards: Sequence[Card]) -> ObservedPeak | None:
    if draw.random() < 0.5:
        return None
    ours = [c for c in cards if profile.gpus == "all" or c.index in profile.gpus]
    if draw.random() < 0.1:
        ours = ours[1:]
    high = draw.random() < 0.2
    return ObservedPeak(
        fingerprint="f" if draw.random() < 0.9 else "another",
        gpus={
            f"GPU-{c.index}": int(c.total_bytes * draw.uniform(0.0, 1.3 if high else 0.97))
            for c in ours
        },
        ram_bytes=_maybe(draw, 36 * GIB if high else 24 * GIB, 0.7),
        seen_unix_s=1.0,
    )


def _filled(draw: Random, found: World, cards: Sequence[Card]) -> World:
    """Put processes on the GPUs, and say which of them cannot be foretold."""
    filled, uncertain = [], set[str | int]()
    told = draw.random() > 0.04
    units = [unit_of(n) for n in found.running]
    if found.restarted:
        units.append(unit_of(NAME))
    if RIVAL in found.profile.conflicts and RIVAL not in found.running and draw.random() < 0.05:
        units.append(unit_of(RIVAL))  # what the kernel could not end
    if not found.restarted and draw.random() < 0.03:
        units.append(unit_of(NAME))  # likewise, of its own last run
    units += draw.choices(STRANGERS, k=draw.choice((0, 0, 0, 1, 1, 2)))
    for card in cards:
        room = card.total_bytes - card.reserved_bytes
        uses = []
        for pid, unit in enumerate(units, start=100):
            if draw.random() < 0.25 and unit in STRANGERS:
                continue
            held = int(room * draw.choice((draw.random() * 0.1, draw.random() * 0.9)))
            room -= held
            compute = unit not in STRANGERS or draw.random() < 0.6
            uses.append(Use(pid=pid, unit=unit, held_bytes=held, compute=compute, told=told))
        nobodys = (
            min(
                room,
                draw.choice(
                    (0, draw.randrange(300 * MIB), draw.randrange(GIB), draw.randrange(9 * GIB))
                ),
            )
            if draw.random() < 0.6
            else 0
        )
        leaves = any(u.unit in found.leaving for u in uses)
        freed = draw.randint(0, nobodys) if leaves and draw.random() < 0.5 and nobodys <= GIB else 0
        filled.append(replace(card, uses=tuple(uses), nobodys_bytes=nobodys, freed_bytes=freed))
        hidden = not told or not card.lists or found.blind
        if found.leaving and (hidden or (leaves and 0 < nobodys <= GIB)):
            uncertain.add(card.index)
    return replace(found, cards=tuple(filled), uncertain=frozenset(uncertain))


def _filled_ram(draw: Random, found: World) -> World:
    total = found.ram_total_bytes
    leaving = [found.running[n] for n in found.stop]
    if found.restarted:
        leaving.append(found.profile)
    held = {a.name: draw.randrange(12 * GIB) for a in leaving}
    groups = {
        name: GroupMemory(resident_bytes=size, locked_bytes=0, pinned_bytes=size, pids=(1,))
        for name, size in held.items()
        if draw.random() < 0.95
    }
    available = draw.randrange(max(1, total - sum(held.values())))
    uncertain = found.uncertain | ({RAM} if leaving else set())
    return replace(
        found,
        ram_available_bytes=available,
        ram_freed_bytes=sum(held.values()) + (draw.randrange(GIB) if leaving else 0),
        groups=groups,
        uncertain=uncertain,
    )
