"""Capacity that clients of this machine and of others share."""

from dataclasses import dataclass, field

from appliance.gateway.capacity import Capacity
from appliance.model.gateway import Limits, Refusal
from appliance.routing.fair_share import Share, ShareUse

LIMITS = Limits(connections=16, buffered_bytes=1600)


@dataclass(eq=False)
class FakeConnection:
    """Connection that records its refusals."""

    owner: str
    local: bool = True
    use: ShareUse = ShareUse.IDLE
    size: int = 0
    told: list[Refusal] = field(default_factory=list)
    aborted: bool = False

    def connection_share(self, number: int) -> Share:
        return Share(self.owner, 1, self.use, -number if self.use is ShareUse.WORKING else number)

    def bytes_share(self, number: int) -> Share | None:
        return Share(self.owner, self.size, self.use, number) if self.size else None

    def evict(self, why: Refusal) -> None:
        self.told.append(why)

    def expire_if_due(self, now_s: float) -> None:
        raise NotImplementedError

    def end_soon(self, at_s: float) -> None:
        raise NotImplementedError

    def abort(self) -> None:
        self.aborted = True


def admitted(capacity: Capacity, *connections: FakeConnection) -> list[str | None]:
    """Admit connections; return the code of each refusal."""
    refusals = [capacity.admit(connection) for connection in connections]
    return [None if refusal is None else refusal.code for refusal in refusals]


def test_clients_elsewhere_leave_an_eighth_to_this_machine() -> None:
    """Other machines leave an eighth to this one, and make room among themselves."""
    capacity = Capacity(LIMITS)
    others = [FakeConnection(f"192.0.2.{n}", local=False) for n in range(20)]
    assert admitted(capacity, *others) == [None] * 20
    assert sum(bool(one.told) for one in others) == 6
    here = [FakeConnection("user 1000") for _ in range(2)]
    assert admitted(capacity, *here) == [None, None]
    assert sum(bool(one.told) for one in others) == 6
    assert admitted(capacity, FakeConnection("192.0.2.99", local=False)) == [None]
    assert not any(one.told for one in here)
    assert len(capacity) == 16


def test_clients_here_take_from_those_who_have_more() -> None:
    """A client of this machine makes other owners give way that have more than its own."""
    capacity = Capacity(LIMITS)
    lan = [FakeConnection("192.0.2.1", local=False, use=ShareUse.WORKING) for _ in range(14)]
    here = [
        FakeConnection("user 1", use=ShareUse.WORKING),
        FakeConnection("user 2", use=ShareUse.WORKING),
    ]
    admitted(capacity, *lan, *here)
    assert admitted(capacity, FakeConnection("user 3", use=ShareUse.WORKING)) == [None]
    assert [bool(one.told) for one in lan] == [False] * 13 + [True]


def test_a_refused_newcomer_is_hung_up_on_when_there_are_too_many() -> None:
    """Only a few refused newcomers stay connected to read why; the rest are closed."""
    capacity = Capacity(LIMITS)
    admitted(capacity, *(FakeConnection("user 1", use=ShareUse.WORKING) for _ in range(16)))
    late = [FakeConnection("user 1", use=ShareUse.WORKING) for _ in range(4)]
    assert admitted(capacity, *late) == ["too_many_connections"] * 4
    assert [one.aborted for one in late] == [False, False, True, True]
    capacity.remove(late[0])
    capacity.remove(late[0])
    assert len(capacity) == 19


def test_bytes_of_other_machines_stay_below_seven_eighths() -> None:
    """Among other machines the owner of the most bytes gives way, not this machine."""
    capacity = Capacity(LIMITS)
    here = FakeConnection("user 1", size=150, use=ShareUse.READING)
    first = FakeConnection("192.0.2.1", local=False, size=700, use=ShareUse.READING)
    second = FakeConnection("192.0.2.2", local=False, size=600, use=ShareUse.READING)
    admitted(capacity, here, first, second)
    assert capacity.check_buffered(second, 1450) is None
    second.size = 720
    assert capacity.check_buffered(second, 1570) is not None
    assert here.told == first.told == []
    first.size, second.size = 800, 620
    assert capacity.check_buffered(second, 1570) is not None
    capacity.forget_refusals()
    assert capacity.check_buffered(second, 1570) is None
    assert [one.code for one in first.told] == ["busy"]
    assert capacity.check_buffered(here, 1600) is None


def test_bytes_beyond_the_limit() -> None:
    """The owner of the most bytes gives way, also when the newest bytes are its own."""
    capacity = Capacity(LIMITS)
    greedy = FakeConnection("192.0.2.1", local=False, size=900, use=ShareUse.READING)
    here = FakeConnection("user 1", size=800, use=ShareUse.READING)
    admitted(capacity, greedy, here)
    assert capacity.check_buffered(here, 1700) is None
    assert greedy.told
    alone = FakeConnection("user 1", size=1700, use=ShareUse.WORKING)
    capacity = Capacity(LIMITS)
    admitted(capacity, alone)
    refusal = capacity.check_buffered(alone, 1700)
    assert refusal is not None
    assert refusal.code == "busy"
    assert not alone.told
