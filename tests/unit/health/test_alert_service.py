"""Assembly of the watchdog: who is told, what asks for a look, and what a look sees without a box."""

import asyncio
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from appliance.alerts.book import AlertBook, AlertPolicy
from appliance.alerts.snapshot import BoxLook
from appliance.health.agent import HealthAgent, QualityWatch, SpeedWatch
from appliance.health.alert_service import AlertService, ServiceSources, notable, policy_of
from appliance.health.box_view import BoxView, ProfileView
from appliance.health.clock import SystemHealthClock
from appliance.health.heartbeat import HeartbeatFacts
from appliance.model.measurements import TrafficSums
from appliance.model.status import EndedOperationRow, OperationRow, ProfileRow, StatusDocument
from appliance.model.targets import TargetStanding
from appliance.settings.tables import AlertSettings, HealthSettings, Settings
from appliance.system.target_names import target_names_text
from tests.fakes.alert_samples import NOW, told, transition
from tests.fakes.health_monitors import FakeCompactingStore
from tests.fakes.probe_lane import FakeProbeLane, LaneAnswer
from tests.fakes.supervisor_documents import as_status
from tests.waiting import until

DOWN = told([transition()]).book
"""Book in which genesis is down, since 30 s before `NOW`."""
PHONE = TargetStanding(name="phone", kind="ntfy")
ROW = ProfileView(
    name="a",
    applied=None,
    serving=True,
    started_unix_s=1.0,
    main_pid=7,
    mark="live",
    held=False,
    state="serving",
)
ENDED = EndedOperationRow(id=1, kind="switch", age_s=1.0)
VIEW = BoxView(connected=True, profiles={"a": ROW}, ended=ENDED)
SWITCH = OperationRow(
    id=1, kind="switch", target=("a",), profiles=("a",), phase="stop", phase_s=1.0, deadline_s=9.0
)


async def no_watches(_names: Sequence[str]) -> Mapping[str, tuple[SpeedWatch, QualityWatch]]:
    return {}


async def no_gpus() -> None:
    return None


def service(directory: Path, *, lane: FakeProbeLane | None = None, **alerts: Any) -> AlertService:
    """Return a service of a box on which nothing runs."""
    clock = SystemHealthClock()
    agent = HealthAgent(
        catalogue=dict,
        make_watches=no_watches,
        store=FakeCompactingStore(),
        is_leased=lambda: False,
        clock=clock,
        on_alive=lambda _text: None,
    )
    sources = ServiceSources(
        agent=agent,
        lane=lane or FakeProbeLane(lambda _request: LaneAnswer()),
        turn=asyncio.Lock(),
        ask_gpus=no_gpus,
        stores=list,
    )
    settings = Settings(
        applied_dir=directory,
        control_socket=directory / "control.sock",
        alerts=AlertSettings(**alerts),
        health=HealthSettings(state_dir=directory),
    )
    return AlertService(settings, sources, clock, lambda: None)


@pytest.mark.parametrize("enabled", [True, False])
async def test_nobody_is_told_where_alerts_are_off(tmp_path: Path, *, enabled: bool) -> None:
    """The names file says who is told; with `alerts.enabled` false nobody is."""
    (tmp_path / "targets.json").write_text(target_names_text([PHONE]))
    parts = service(tmp_path, enabled=enabled)
    assert parts.target_names() == (["phone"] if enabled else [])
    await parts.end()


async def test_trouble_with_the_targets_is_said(tmp_path: Path) -> None:
    """A names file that cannot be read is a trouble of the agent."""
    (tmp_path / "targets.json").write_text("{")
    parts = service(tmp_path)
    assert parts.targets() == ()
    assert "appliance target ls" in parts.troubles()[0]
    await parts.end()


@pytest.mark.parametrize(
    ("span", "policy"),
    [
        ("", AlertPolicy()),
        ("22:00-07:00", AlertPolicy(quiet_from="22:00", quiet_to="07:00")),
    ],
)
async def test_quiet_hours_are_those_of_the_settings(
    tmp_path: Path, span: str, policy: AlertPolicy
) -> None:
    """An empty span means that there are none."""
    settings = Settings(
        control_socket=tmp_path / "control.sock", alerts=AlertSettings(quiet_hours=span)
    )
    assert policy_of(settings.alerts) == policy


@pytest.mark.parametrize(
    ("after", "is_news"),
    [
        (replace(VIEW, read_s=9.0), False),
        (replace(VIEW, traffic={"a": TrafficSums(unix_s=9.0)}), False),
        (replace(VIEW, profiles={"a": replace(ROW, in_flight=3)}), False),
        (replace(VIEW, profiles={"a": replace(ROW, state="failed")}), True),
        (replace(VIEW, profiles={"a": replace(ROW, mark="retired")}), True),
        (replace(VIEW, running=SWITCH), True),
        (replace(VIEW, ended=ENDED.replaced(age_s=9.0)), False),
        (replace(VIEW, ended=ENDED.replaced(id=2)), True),
        (replace(VIEW, connected=False), True),
        (replace(VIEW, watch_marks={"wiki": "retired"}), True),
    ],
)
def test_states_are_news_and_figures_are_none(after: BoxView, *, is_news: bool) -> None:
    """A change of a state has a look of its own; traffic alone has none."""
    assert (notable(after) != notable(VIEW)) is is_news


async def test_there_is_no_heartbeat_before_the_first_look(tmp_path: Path) -> None:
    """Signs of life come from a watchdog that looks, and from no other."""
    parts = service(tmp_path)
    await parts.open()
    await parts.heartbeat.beat()
    assert "no look at the box" in parts.heartbeat.facts.trouble
    await parts.end()


async def test_a_stop_in_the_status_is_silenced(tmp_path: Path) -> None:
    """Documents pass the watch over stops on their way to the agent, as does the word of a lost one."""
    box = service(tmp_path)
    stop = {
        "id": 7,
        "kind": "stop",
        "profiles": ["a"],
        "outcome": "done",
        "finished_unix_s": time.time(),
    }
    row = {"name": "a", "state": "stopped", "mark": "live"}
    stopped = as_status({"profiles": [row], "last_operation": stop})

    async def documents() -> AsyncIterator[StatusDocument | None]:
        yield stopped
        yield None

    await box.open()
    await box.watchdog.read()
    passed = [one async for one in box.watched(documents())]
    assert passed == [stopped, None]
    assert [one.subject.name for one in box.watchdog.book.silences] == ["a"]
    await box.end()


async def test_the_gateway_is_told_which_engines_do_not_answer(tmp_path: Path) -> None:
    """As long as it is so and somebody knows it; a gateway that is restarted is told again."""
    lane = FakeProbeLane(lambda _request: LaneAnswer())
    box = service(tmp_path, lane=lane)
    await box.open()
    await box.watchdog.read()
    documents: asyncio.Queue[StatusDocument | None] = asyncio.Queue()

    async def feed() -> AsyncIterator[StatusDocument | None]:
        while True:
            yield await documents.get()

    async def take() -> None:
        async for _ in box.watched(feed()):
            pass

    def serving(since_unix_s: float) -> StatusDocument:
        row = ProfileRow(name="genesis", state="serving", since_unix_s=since_unix_s)
        return StatusDocument(profiles=[row])

    tasks = [asyncio.create_task(box.show_unresponsive()), asyncio.create_task(take())]
    try:
        for book, document, is_shown in (
            (AlertBook(), serving(NOW - 60), False),
            (DOWN, serving(NOW - 60), True),
            (DOWN, serving(NOW), False),
            (DOWN, serving(NOW - 60), True),
            (DOWN, None, False),
            (DOWN, serving(NOW - 60), True),
            (AlertBook(), serving(NOW - 60), False),
            (DOWN, serving(NOW - 60), True),
        ):
            box.watchdog.book = book
            documents.put_nowait(document)
            names = ("genesis",) if is_shown else ()
            await until(lambda names=names: lane.unresponsive == names)  # type: ignore[misc]
        lane.restart()
        await until(lambda: not lane.unresponsive)
        documents.put_nowait(serving(NOW - 60))
        await until(lambda: lane.unresponsive)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await box.end()
    assert lane.unresponsive == ()


class RecordingSender:
    """Sender that notes what it was told."""

    trouble = None

    def __init__(self) -> None:
        self.told: list[object] = []

    async def run(self) -> None:
        self.told.append("runs")

    def retry_now(self) -> None:
        self.told.append("now")

    async def forget(self, known: Sequence[str]) -> None:
        self.told.append(list(known))


async def test_nothing_is_sent_before_the_first_look(tmp_path: Path) -> None:
    """A message that waits since before a boot may be about a process that the boot has ended: a look judges first."""
    (tmp_path / "targets.json").write_text(target_names_text([PHONE]))
    box = service(tmp_path)
    seen: list[bool] = []

    class LookingSender(RecordingSender):
        """Sender that notes whether the box was looked at when it begins."""

        async def run(self) -> None:
            seen.append(box.watchdog.is_fresh())

    box.sender = LookingSender()  # type: ignore[assignment]
    await box.open()
    tasks = asyncio.TaskGroup()
    async with tasks:
        box.start(tasks)
        await until(lambda: seen)
        for task in tasks._tasks:
            task.cancel()
    await box.end()
    assert seen == [True]


async def test_a_change_of_the_targets_is_followed(tmp_path: Path) -> None:
    """Waiting messages are tried at once, or dropped with their target; a damaged file changes nothing."""
    box = service(tmp_path)
    names = tmp_path / "targets.json"
    names.write_text(target_names_text([PHONE]))
    sender = RecordingSender()
    box.sender = sender  # type: ignore[assignment]
    await box.follow_targets()
    await box.follow_targets()
    assert sender.told == [["phone"], "now"]
    names.write_text("{")
    await box.follow_targets()
    assert len(sender.told) == 2
    names.unlink()
    await box.follow_targets()
    assert sender.told[2:] == [[], "now"]
    await box.end()


async def test_messages_go_at_once_when_the_network_is_back(tmp_path: Path) -> None:
    """Waits of up to 15 minutes, which an outage of ours has grown, end with it."""
    box = service(tmp_path)
    sender = RecordingSender()
    box.sender = sender  # type: ignore[assignment]
    look = BoxLook(unix_s=100.0, monotonic_s=100.0, supervisor_answers=True)
    for unreached_unix_s in (None, 50.0, 50.0, None, None):
        box.heartbeat.facts = HeartbeatFacts(unreached_unix_s=unreached_unix_s)
        assert box.circumstances(look).internet_down_since == unreached_unix_s
    assert sender.told == ["now"]
    await box.end()
