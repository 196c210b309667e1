"""The room that clients of this machine and of others share."""

from dataclasses import dataclass, field

from appliance.domain.gateway import Limits, Refusal
from appliance.gateway.relay.capacity import Capacity
from appliance.planning.routing.fair_share import Share, ShareUse

LIMITS = Limits(connections=16, buffered_bytes=1600)


@dataclass(eq=False)
class CountedConnection:
    """A connection that remembers what it was told."""

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


def entered(room: Capacity, *connections: CountedConnection) -> list[str | None]:
    """What each was told."""
    refusals = [room.admit(connection) for connection in connections]
    return [None if refusal is None else refusal.code for refusal in refusals]


def test_clients_elsewhere_leave_an_eighth_to_this_machine() -> None:
    """However many addresses they have; among themselves they make room."""
    room = Capacity(LIMITS)
    others = [CountedConnection(f"192.0.2.{n}", local=False) for n in range(20)]
    assert entered(room, *others) == [None] * 20
    assert sum(bool(one.told) for one in others) == 6
    here = [CountedConnection("user 1000") for _ in range(2)]
    assert entered(room, *here) == [None, None]
    assert sum(bool(one.told) for one in others) == 6
    assert entered(room, CountedConnection("192.0.2.99", local=False)) == [None]
    assert not any(one.told for one in here)
    assert len(room) == 16


def test_clients_here_take_from_those_who_have_more() -> None:
    """Also when all room is taken by other machines' requests and their own few."""
    room = Capacity(LIMITS)
    lan = [CountedConnection("192.0.2.1", local=False, use=ShareUse.WORKING) for _ in range(14)]
    here = [
        CountedConnection("user 1", use=ShareUse.WORKING),
        CountedConnection("user 2", use=ShareUse.WORKING),
    ]
    entered(room, *lan, *here)
    assert entered(room, CountedConnection("user 3", use=ShareUse.WORKING)) == [None]
    assert [bool(one.told) for one in lan] == [False] * 13 + [True]


def test_a_refused_newcomer_is_hung_up_on_when_there_are_too_many() -> None:
    """A few are told why."""
    room = Capacity(LIMITS)
    entered(room, *(CountedConnection("user 1", use=ShareUse.WORKING) for _ in range(16)))
    late = [CountedConnection("user 1", use=ShareUse.WORKING) for _ in range(4)]
    assert entered(room, *late) == ["too_many_connections"] * 4
    assert [one.aborted for one in late] == [False, False, True, True]
    room.remove(late[0])
    room.remove(late[0])
    assert len(room) == 19


def test_bytes_of_other_machines_stay_below_seven_eighths() -> None:
    """The greediest of them gives way, not this machine."""
    room = Capacity(LIMITS)
    here = CountedConnection("user 1", size=150, use=ShareUse.READING)
    first = CountedConnection("192.0.2.1", local=False, size=700, use=ShareUse.READING)
    second = CountedConnection("192.0.2.2", local=False, size=600, use=ShareUse.READING)
    entered(room, here, first, second)
    assert room.check_buffered(second, 1450) is None
    second.size = 720
    assert room.check_buffered(second, 1570) is not None
    assert here.told == first.told == []
    first.size, second.size = 800, 620
    assert room.check_buffered(second, 1570) is not None
    room.forget_refusals()
    assert room.check_buffered(second, 1570) is None
    assert [one.code for one in first.told] == ["busy"]
    assert room.check_buffered(here, 1600) is None


def test_bytes_beyond_the_limit() -> None:
    """Whoever has the most gives way, also when it is the one whose bytes have come."""
    room = Capacity(LIMITS)
    greedy = CountedConnection("192.0.2.1", local=False, size=900, use=ShareUse.READING)
    here = CountedConnection("user 1", size=800, use=ShareUse.READING)
    entered(room, greedy, here)
    assert room.check_buffered(here, 1700) is None
    assert greedy.told
    alone = CountedConnection("user 1", size=1700, use=ShareUse.WORKING)
    room = Capacity(LIMITS)
    entered(room, alone)
    refusal = room.check_buffered(alone, 1700)
    assert refusal is not None
    assert refusal.code == "busy"
    assert not alone.told
