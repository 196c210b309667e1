"""Stream of the box: order, ids, resumption, slow clients, and the end of following."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any

import pytest

from appliance.model.events import AlertEvent, MeasuredEvent
from appliance.model.json_reader import parse_object
from appliance.model.status import StatusDocument
from appliance.web.api.stream import KEEP_ALIVE_S, lines
from appliance.web.box_documents import BoxDocuments
from appliance.web.box_stream import (
    GATHER_S,
    MOST_WAITING,
    BoxStream,
    StreamEvent,
    StreamOverflowError,
    StreamPosition,
)
from appliance.wire.control_events import OperationsRequest, StatusEvent
from appliance.wire.health_socket import MeasurementEventsRequest
from appliance.wire.status_socket import (
    FollowRequest,
    OperationEvent,
    WatchRequest,
)
from tests.fakes.fixed_box import NOT_RUNNING, FixedBox

PHASES = ["preflight", "hold", "drain", "stop", "release", "start", "load", "warm-up", "commit"]
Told = AsyncGenerator[Sequence[tuple[StreamEvent, str]], None]


@pytest.fixture
def box() -> FixedBox:
    """A box whose newest operation is 6, with queues for what its daemons tell."""
    box = FixedBox(BoxDocuments(unix_s=5.0, status=StatusDocument(host="garage")))
    box.answers[OperationsRequest] = {"operations": [{"id": 6}]}
    box.agent_events = [MeasuredEvent(3, 50.0, "smol", "loss")]
    for request in (WatchRequest, FollowRequest, MeasurementEventsRequest):
        box.told[request] = asyncio.Queue()
    return box


def phase(operation: int, name: str) -> OperationEvent:
    return OperationEvent(operation, {"event": "phase", "phase": name})


def result(operation: int) -> OperationEvent:
    return OperationEvent(operation, {"event": "result", "outcome": "done"})


async def taken(events: Told, count: int) -> list[tuple[str, dict[str, Any], str]]:
    """The next events, whose pieces end with the last of them: name, data, id."""
    found: list[tuple[StreamEvent, str]] = []
    async with asyncio.timeout(10):
        while len(found) < count:
            found += await anext(events)
    assert len(found) == count
    return [(event.name, parse_object(event.data), position) for event, position in found]


async def test_the_snapshot_comes_first_with_the_position_of_now(box: FixedBox) -> None:
    """A client that is new is told what is; its id is that of the newest rows."""
    async with aclosing(BoxStream(box, gather_s=0.0).events()) as events:
        ((name, data, position),) = await taken(events, 1)
    assert (name, data["status"]["host"], position) == ("snapshot", "garage", "m3.a0.o6")


async def test_every_client_sees_every_phase_in_order_over_one_follower(box: FixedBox) -> None:
    """Fifty clients cost one conversation of each kind, which ends with the last of them."""
    stream = BoxStream(box, gather_s=0.0)
    clients = [stream.events() for _ in range(50)]
    for client in clients:
        await taken(client, 1)
    for name in PHASES:
        box.told[FollowRequest].put_nowait(phase(7, name))
    box.told[FollowRequest].put_nowait(result(7))
    for client in clients:
        seen = await taken(client, len(PHASES) + 1)
        assert [data["change"].get("phase") for _, data, _ in seen[:-1]] == PHASES
        assert [position for _, _, position in seen[-2:]] == ["m3.a0.o6", "m3.a0.o7"]
        assert box.followers == 3
    for client in clients:
        await client.aclose()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert box.followers == 0


@pytest.mark.parametrize(
    ("ids", "most", "asked"),
    [
        ([""] * 256, 2, 2),
        (["m3.a4.o7"] * 256, 4, 5),
        ([f"m{number}.a0.o0" for number in range(256)], 4, 300),
    ],
    ids=["new", "back at one position", "back at positions of their own"],
)
async def test_many_clients_at_once_ask_few_questions(
    box: FixedBox, ids: Sequence[str], most: int, asked: int
) -> None:
    """Clients that begin together share their questions, and the daemons have few at a time of this process."""
    stream = BoxStream(box, gather_s=0.0)
    clients = [stream.events(last_id) for last_id in ids]
    # A client that comes back has the measurement that it missed, or all that there is, as well.
    counts = [2 if last_id and not last_id.startswith("m3") else 1 for last_id in ids]
    await asyncio.gather(*map(taken, clients, counts))
    assert box.most_questions <= most
    assert len(box.asked) <= asked
    for client in clients:
        await client.aclose()


async def test_a_client_that_comes_back_is_told_what_it_missed_once(box: FixedBox) -> None:
    """Operations by their records, measurements and alerts as they were; then what happens."""
    box.answers[OperationsRequest] = {"operations": [{"id": 9}, {"id": 8}, {"id": 7}, {"id": 6}]}
    alert = AlertEvent(5, 60.0, "fired", "A1", "box", "disk", 1, "warning")
    box.agent_events = [MeasuredEvent(4, 55.0, "smol", "loss"), alert]
    async with aclosing(BoxStream(box, gather_s=0.0).events("m3.a4.o7")) as events:
        seen = await taken(events, 5)
        box.told[FollowRequest].put_nowait(result(9))  # it has that one already
        box.told[FollowRequest].put_nowait(result(10))
        seen += await taken(events, 1)
    assert [(name, position) for name, _, position in seen] == [
        ("snapshot", "m3.a4.o7"),
        ("recorded", "m3.a4.o8"),
        ("recorded", "m3.a4.o9"),
        ("measured", "m4.a4.o9"),
        ("alert", "m4.a5.o9"),
        ("operation", "m4.a5.o10"),
    ]
    assert MeasurementEventsRequest(after=3, most=500, alerts_after=4) in box.asked


async def test_a_lost_daemon_is_told_once_and_followed_again(box: FixedBox) -> None:
    """The pause before the next try is short at first."""
    async with aclosing(BoxStream(box, gather_s=0.0).events()) as events:
        await taken(events, 1)
        box.told[WatchRequest].put_nowait(NOT_RUNNING)
        box.told[WatchRequest].put_nowait(NOT_RUNNING)
        box.told[WatchRequest].put_nowait(StatusEvent(StatusDocument(host="garage")))
        seen = await taken(events, 2)
    assert [name for name, _, _ in seen] == ["lost", "status"]


async def test_a_client_that_does_not_read_is_sent_away_alone(box: FixedBox) -> None:
    """The queue of one is bounded; the others go on."""
    stream = BoxStream(box, gather_s=0.0)
    slow, quick = stream.events(), stream.events()
    await taken(slow, 1)
    await taken(quick, 1)
    for number in range(MOST_WAITING + 10):
        box.told[FollowRequest].put_nowait(phase(7, str(number)))
        (seen,) = await taken(quick, 1)
        assert seen[1]["change"]["phase"] == str(number)
    with pytest.raises(StreamOverflowError):
        await taken(slow, MOST_WAITING + 1)
    await quick.aclose()


@pytest.mark.parametrize("text", ["", "m1.a2", "m1.a2.o3x", "m-1.a2.o3", "m1.a2.o" + "9" * 16, "é"])
def test_an_id_that_is_none_is_ignored(text: str) -> None:
    """The client then begins with now."""
    assert StreamPosition.of(text) is None


def test_an_id_is_read_as_it_is_written() -> None:
    """Both ways."""
    position = StreamPosition(measured=12, alert=34, operation=56)
    assert StreamPosition.of(str(position)) == position


@pytest.mark.virtual_time
async def test_events_of_one_moment_go_out_together_with_one_status(box: FixedBox) -> None:
    """Every event of an operation comes in order, and of several status documents the last."""
    async with aclosing(BoxStream(box).events()) as events:
        await taken(events, 1)
        for number, name in enumerate(PHASES):
            box.told[WatchRequest].put_nowait(StatusEvent(StatusDocument(host=str(number))))
            box.told[FollowRequest].put_nowait(phase(7, name))
        begin = asyncio.get_running_loop().time()
        piece = await anext(events)
        assert asyncio.get_running_loop().time() - begin == pytest.approx(GATHER_S)
    told = [(event.name, parse_object(event.data)) for event, _ in piece]
    assert [data["change"]["phase"] for name, data in told if name == "operation"] == PHASES
    hosts = [data["host"] for name, data in told if name == "status"]
    assert hosts == [str(len(PHASES) - 1)]


@pytest.mark.virtual_time
async def test_a_quiet_stream_is_kept_alive(box: FixedBox) -> None:
    """A comment comes after fifteen seconds without an event, and the next event is not lost."""
    text = lines(BoxStream(box).events(quiet_s=KEEP_ALIVE_S))
    begin = asyncio.get_running_loop().time()
    first = [await anext(text) for _ in range(4)]
    assert [first[0], *first[2:]] == ["retry: 2000\n\n"] + 2 * [": still here\n\n"]
    assert asyncio.get_running_loop().time() - begin == pytest.approx(30)
    box.told[WatchRequest].put_nowait(StatusEvent(StatusDocument(host="garage")))
    assert (await anext(text)).startswith('event: status\nid: m3.a0.o6\ndata: {"host": "garage", ')
    assert isinstance(text, AsyncGenerator)
    await text.aclose()
