"""Model of GPU memory in GiB: engines take it, and give it back when they like after their end."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from appliance.model.claims import Claim
from tests.fakes.clock import NEVER


@dataclass
class FakeGpu:
    """One GPU. Amounts are in GiB."""

    size: int
    held: dict[str, int] = field(default_factory=dict)
    """Memory that running backends have taken, by profile."""
    promised: dict[str, int] = field(default_factory=dict)
    """Memory that admitted backends will take, by profile."""
    ghosts: list[tuple[float, int]] = field(default_factory=list)
    """Memory that dead processes have not given back: the time of its release, and the amount."""
    foreign: int = 0
    """Memory of foreign programs."""

    @property
    def free(self) -> int:
        """Return the free memory that the driver reports."""
        return self.size - self.foreign - sum(self.held.values()) - sum(g for _, g in self.ghosts)

    @property
    def unpromised(self) -> int:
        """Return the memory that no backend was promised."""
        return self.free - sum(self.promised.values())


class FakeGpus:
    """The GPUs of a box, by index."""

    def __init__(self, size: int, count: int) -> None:
        self.size = size
        self.gpus = {index: FakeGpu(size=size) for index in range(count)}
        self.overfull: list[str] = []
        """Starts that ran out of memory."""

    def fits(self, need: Mapping[int, int]) -> bool:
        """Tell whether the need fits, as a gate asks."""
        return all(self.gpus[i].free >= amount for i, amount in need.items())

    def promise(self, name: str, need: Mapping[int, int]) -> None:
        """A gate has admitted `name`."""
        for index, amount in need.items():
            self.gpus[index].promised[name] = amount

    def allocate(self, name: str) -> bool:
        """The engine takes what it needs; False: there is not enough."""
        for gpu in self.gpus.values():
            amount = gpu.promised.pop(name, 0)
            if amount > gpu.free:
                self.overfull.append(name)
                return False
            if amount:
                gpu.held[name] = amount
        return True

    def is_haunted(self, claim: Claim) -> bool:
        """Whether memory of the dead is still to come back on what `claim` covers."""
        return any(self.gpus[i].ghosts for i in self._covered(claim))

    def take_all(self, name: str, claim: Claim) -> None:
        """A command takes all that is left on what it may use; nobody knows its need."""
        for index in self._covered(claim):
            self.gpus[index].held[name] = max(0, self.gpus[index].unpromised)

    def _covered(self, claim: Claim) -> list[int]:
        return [i for i in self.gpus if claim.intersects(Claim(devices=frozenset({f"gpu-{i}"})))]

    def leave(self, name: str, comes_back_s: float) -> None:
        """The processes of `name` have ended; the memory comes back later."""
        for gpu in self.gpus.values():
            gpu.promised.pop(name, None)
            if amount := gpu.held.pop(name, 0):
                gpu.ghosts.append((comes_back_s, amount))

    def grab(self, index: int, amount: int) -> None:
        """Let a foreign program take memory that no backend was promised; 0 GiB: it ends."""
        gpu = self.gpus[index]
        gpu.foreign = 0
        gpu.foreign = max(0, min(amount, gpu.unpromised))

    def give_back(self, now_s: float) -> None:
        """Forget the ghosts whose time has come."""
        for gpu in self.gpus.values():
            gpu.ghosts = [(due, amount) for due, amount in gpu.ghosts if due > now_s]

    def returns_by(self, at_s: float) -> None:
        """Every ghost goes by then, those for ever too."""
        for gpu in self.gpus.values():
            gpu.ghosts = [(min(due, at_s), amount) for due, amount in gpu.ghosts]

    def next_due_s(self) -> float:
        """Return when memory comes back next."""
        return min((due for gpu in self.gpus.values() for due, _ in gpu.ghosts), default=NEVER)

    def power_cut(self) -> None:
        """Release all memory."""
        self.gpus = {index: FakeGpu(size=self.size) for index in self.gpus}
