"""The heartbeat: whoever waits for it is told of a dead box, and of nothing else."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from appliance.alerts.box_messages import BoxWords
from appliance.health.heartbeat import BEAT_EVERY_S, Heartbeat
from appliance.model.alerts import SendOutcome
from tests.fakes.beat_notifier import FakeBeatNotifier
from tests.fakes.health_clock import VirtualHealthClock
from tests.fakes.virtual_time import advance

pytestmark = pytest.mark.virtual_time

SILENT_AFTER_S = 300.0
REBOOT_TAKES_S = 900.0
SILENT, BACK = "▼ garage is silent", "▲ garage is heard again"


class Garage:
    """A box whose heartbeat dies and comes back."""

    def __init__(self, tmp_path: Path) -> None:
        self.clock = VirtualHealthClock()
        self.targets = ["phone"]
        self.changes = 0
        self.trouble = ""
        self.notifier = FakeBeatNotifier(now=self.clock.unix_s)
        self.record = tmp_path / "heartbeat.json"
        self.heart = self.new()

    def new(self) -> Heartbeat:
        """Return a heartbeat as a start of the agent makes it."""
        self.heart = Heartbeat(
            notifier=self.notifier,
            targets=lambda: self.targets,
            changes=lambda: self.changes,
            trouble=lambda: self.trouble,
            words=BoxWords(host="garage", clock=lambda unix_s: f"{unix_s:.0f}"),
            silent_after_s=SILENT_AFTER_S,
            reboot_takes_s=REBOOT_TAKES_S,
            record=self.record,
            clock=self.clock,
        )
        return self.heart

    @asynccontextmanager
    async def beating(self) -> AsyncIterator[Heartbeat]:
        """Beat meanwhile; the end is that of a power cut."""
        task = asyncio.create_task(self.new().run())
        try:
            yield self.heart
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


@pytest.fixture
def garage(tmp_path: Path) -> Garage:
    return Garage(tmp_path)


async def test_a_box_that_lives_is_not_silent(garage: Garage) -> None:
    """Each beat pings, and pushes the message away before it is due."""
    async with garage.beating() as heart:
        await advance(3600)
        assert garage.notifier.phone() == []
        assert len(garage.notifier.pings) == 3600 // BEAT_EVERY_S
        assert heart.facts.is_set
        assert (heart.facts.armed, heart.facts.trouble) == (("phone",), "")
        assert garage.clock.unix_s() - (heart.facts.armed_unix_s or 0) <= BEAT_EVERY_S


async def test_a_power_cut_is_told_within_six_minutes(garage: Garage) -> None:
    """The target delivers the message by itself; once the box is back, the same entry says so."""
    async with garage.beating():
        await advance(200)
    cut_s = garage.clock.unix_s()
    await advance(1200)
    ((told_s, _, message),) = garage.notifier.delivered if garage.notifier.phone() else []
    assert message.title == SILENT
    assert told_s - cut_s <= 360
    async with garage.beating():
        await advance(200)
        assert garage.notifier.phone() == [SILENT, BACK]
        back = garage.notifier.delivered[-1][2]
        assert (back.sequence_id, back.resolved) == (message.sequence_id, True)
        assert "(2" in back.body  # minutes since the last sign of life
        await advance(3600)
        assert garage.notifier.phone() == [SILENT, BACK]


async def test_a_watchdog_in_trouble_has_no_heartbeat(garage: Garage) -> None:
    """A loop that is not fresh, or rows that do not go, look like a dead box from outside."""
    async with garage.beating() as heart:
        await advance(100)
        pings = len(garage.notifier.pings)
        garage.trouble = "the watchdog's last look is old"
        await advance(600)
        assert len(garage.notifier.pings) == pings
        assert garage.notifier.phone() == [SILENT]
        assert heart.facts.trouble == "no heartbeat: the watchdog's last look is old"
        garage.trouble = ""
        await advance(100)
        assert garage.notifier.phone() == [SILENT, BACK]
        assert heart.facts.trouble == ""


async def test_a_reboot_each_day_is_no_silence(garage: Garage) -> None:
    """A planned shutdown pushes the message by the time that a reboot takes."""
    for _ in range(30):
        async with garage.beating() as heart:
            await advance(3600)
            await heart.end(is_shutdown=True)
        await advance(300)
    assert garage.notifier.phone() == []
    await advance(SILENT_AFTER_S + REBOOT_TAKES_S)
    assert garage.notifier.phone() == [SILENT]


async def test_a_stop_by_hand_takes_the_message_back(
    garage: Garage, caplog: pytest.LogCaptureFixture
) -> None:
    """An agent that a person stops dies for nobody, and its journal says that nobody is told now."""
    async with garage.beating() as heart:
        await advance(100)
        await heart.end(is_shutdown=False)
    await advance(7200)
    assert garage.notifier.phone() == []
    assert "nobody is told of faults" in caplog.text
    async with garage.beating():
        await advance(100)
    assert garage.notifier.phone() == []


async def test_the_end_is_bounded(garage: Garage, caplog: pytest.LogCaptureFixture) -> None:
    """A notifier that hangs does not keep the agent from ending."""
    async with garage.beating() as heart:
        await advance(100)
        garage.notifier.delay_s = 1000.0
        began_s = garage.clock.monotonic_s()
        await heart.end(is_shutdown=True)
        assert garage.clock.monotonic_s() - began_s <= 10
    assert "may tell that the box is silent" in caplog.text


@pytest.mark.parametrize("verb", ["ping", "schedule"])
async def test_what_refuses_is_left_alone_for_an_hour(garage: Garage, verb: str) -> None:
    """No watch configured, or a server without sequence ids: the notifier is not started each minute for it."""
    garage.notifier.answers[verb] = SendOutcome.REFUSED
    async with garage.beating() as heart:
        await advance(3500)
        assert garage.notifier.asked.count(verb) == 1
        assert heart.facts.trouble == ""
        assert (heart.facts.ping_unix_s is None) is (verb == "ping")
        assert (heart.facts.armed == ()) is (verb == "schedule")
        await advance(200)
        assert garage.notifier.asked.count(verb) == 2
        garage.targets.append("desk")
        await advance(BEAT_EVERY_S)
        assert garage.notifier.asked.count(verb) == (3 if verb == "ping" else 4)
        garage.changes += 1
        garage.notifier.answers.clear()
        await advance(BEAT_EVERY_S)
        assert heart.facts.ping_unix_s is not None
        assert heart.facts.armed == ("desk", "phone")


async def test_nobody_outside_would_notice(garage: Garage) -> None:
    """Without a watch and a target that keeps messages the facts say that nothing is set."""
    garage.targets.clear()
    garage.notifier.answers["ping"] = SendOutcome.REFUSED
    async with garage.beating() as heart:
        await advance(200)
        assert not heart.facts.is_set


async def test_a_watch_that_ends_is_no_heartbeat(garage: Garage) -> None:
    """After the address of the outside watch is gone, its last ping is not told any more."""
    garage.targets.clear()
    async with garage.beating() as heart:
        await advance(100)
        assert heart.present_facts().is_set
        garage.notifier.answers["ping"] = SendOutcome.REFUSED
        await advance(BEAT_EVERY_S)
        assert not heart.present_facts().is_set


async def test_a_target_that_was_removed_is_not_told_of(garage: Garage) -> None:
    """A status right after the removal, so before the next beat, knows of it."""
    garage.targets.append("desk")
    garage.notifier.answers["ping"] = SendOutcome.REFUSED
    async with garage.beating() as heart:
        await advance(100)
        garage.targets.remove("phone")
        told = heart.present_facts()
        assert (told.armed, told.armed_unix_s) == (("desk",), heart.facts.armed_unix_s)
        garage.targets.clear()
        told = heart.present_facts()
        assert (told.is_set, told.armed_unix_s) == (False, None)


async def test_a_target_that_is_gone_is_forgotten(garage: Garage) -> None:
    """A target that was removed is asked no longer."""
    async with garage.beating() as heart:
        await advance(100)
        garage.targets.clear()
        await advance(100)
        assert heart.facts.armed == ()
        asked = garage.notifier.asked.count("schedule")
        await advance(500)
        assert garage.notifier.asked.count("schedule") == asked


async def test_a_network_that_is_away_is_told_as_silence(garage: Garage) -> None:
    """From outside it is one; the beat is tried on, and what failed is said."""
    async with garage.beating() as heart:
        await advance(100)
        garage.notifier.answers = dict.fromkeys(
            ("ping", "schedule", "send", "cancel"), SendOutcome.RETRY
        )
        await advance(400)
        assert heart.facts.trouble == "not reached: the outside watch, phone"
        since_s = heart.facts.unreached_unix_s
        assert since_s is not None
        assert 300 < garage.clock.unix_s() - since_s <= 400
        garage.notifier.answers = {"ping": SendOutcome.RETRY}
        await advance(100)
        assert heart.facts.unreached_unix_s is None
        garage.notifier.answers = {}
        await advance(100)
        assert garage.notifier.phone() == [SILENT, BACK]
        garage.notifier.is_away = True
        await advance(100)
        assert heart.facts.trouble == "not reached: the outside watch, phone"


@pytest.mark.parametrize("text", ["", "{", '{"scheduled": 1}', '{"scheduled": [{"target": 1}]}'])
async def test_a_damaged_record_is_an_empty_one(garage: Garage, text: str) -> None:
    """The record serves the message that the box is heard again, and that alone."""
    garage.record.write_text(text)
    async with garage.beating() as heart:
        await advance(10)
        assert heart.facts.armed == ("phone",)


async def test_a_record_that_cannot_be_written_stops_nothing(garage: Garage) -> None:
    """A full disk costs the record alone."""
    garage.record.with_suffix(".new").mkdir()
    async with garage.beating() as heart:
        await advance(200)
        assert heart.facts.armed == ("phone",)
        assert garage.notifier.phone() == []
