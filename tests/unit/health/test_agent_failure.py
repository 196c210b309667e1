"""The message that the health agent is dead, and the one that it watches again."""

import asyncio
from pathlib import Path

import pytest

from appliance.alerts.box_messages import BoxWords
from appliance.health.agent_failure import (
    AgentFailure,
    read_failure,
    tell_failure,
    tell_return,
)
from appliance.model.alerts import SendOutcome
from tests.fakes.beat_notifier import FakeBeatNotifier
from tests.fakes.health_clock import VirtualHealthClock
from tests.fakes.virtual_time import advance

pytestmark = pytest.mark.virtual_time

WORDS = BoxWords(host="garage", clock=lambda unix_s: f"{unix_s:.0f}")
DEAD, BACK = "▼ garage: the health agent is dead", "▲ garage: the health agent watches again"


class Failed:
    """An agent that systemd has given up."""

    def __init__(self, tmp_path: Path) -> None:
        self.clock = VirtualHealthClock()
        self.notifier = FakeBeatNotifier(now=self.clock.unix_s)
        self.path = tmp_path / "agent-failure.json"
        self.targets = ["phone", "desk"]
        self.is_fresh = True

    async def tell(self, result: str = "watchdog") -> bool:
        return await tell_failure(
            self.notifier,
            self.targets,
            words=WORDS,
            path=self.path,
            clock=self.clock,
            result=result,
        )

    async def come_back(self) -> None:
        await tell_return(
            self.notifier,
            lambda: self.targets,
            words=WORDS,
            path=self.path,
            clock=self.clock,
            is_fresh=lambda: self.is_fresh,
        )


@pytest.fixture
def failed(tmp_path: Path) -> Failed:
    return Failed(tmp_path)


async def test_each_target_is_told_of_the_failure_and_of_its_end(failed: Failed) -> None:
    """Both messages are one entry; once both are told, the failure is forgotten."""
    assert await failed.tell()
    assert failed.notifier.phone() == [DEAD, DEAD]
    dead = failed.notifier.delivered[0][2]
    assert "(watchdog)" in dead.body
    assert "tried again in 15 min" in dead.body
    await advance(900)
    await failed.come_back()
    assert failed.notifier.phone() == [DEAD, DEAD, BACK, BACK]
    back = failed.notifier.delivered[-1][2]
    assert (back.sequence_id, back.resolved) == (dead.sequence_id, True)
    assert "(15 min)" in back.body
    assert read_failure(failed.path) is None
    await failed.come_back()
    assert len(failed.notifier.phone()) == 4


async def test_a_notifier_that_is_away_is_asked_for_a_quarter_of_an_hour(failed: Failed) -> None:
    """The message is late; if none goes through, the agent itself tells it when it is back."""
    failed.notifier.answers["send"] = SendOutcome.RETRY
    telling = asyncio.create_task(failed.tell())
    await advance(70)
    failed.notifier.answers.clear()
    assert await telling
    assert failed.notifier.phone() == [DEAD, DEAD]
    failed.path.unlink()
    failed.notifier.answers["send"] = SendOutcome.RETRY
    began_s = failed.clock.unix_s()
    assert not await failed.tell()
    assert 600 < failed.clock.unix_s() - began_s < 900
    assert read_failure(failed.path) == AgentFailure(dead_unix_s=began_s)


async def test_one_target_that_fails_keeps_none_from_being_told(failed: Failed) -> None:
    """A target that refuses is given up; those that were told are not told twice."""
    failed.notifier.answers["send"] = SendOutcome.REFUSED
    assert await failed.tell()
    assert failed.notifier.asked == ["send", "send"]


async def test_an_agent_that_dies_again_and_again_is_told_each_hour(failed: Failed) -> None:
    """The beginning stays that of the first failure."""
    for _ in range(5):
        assert await failed.tell()
        await advance(900)
    assert failed.notifier.phone() == [DEAD] * 4
    first, last = failed.notifier.delivered[0][2], failed.notifier.delivered[-1][2]
    assert first.body == last.body


async def test_the_end_is_told_once_the_agent_really_watches(failed: Failed) -> None:
    """An agent that is given up again within its first looks has told nobody that it is back."""
    await failed.tell()
    failed.is_fresh = False
    coming = asyncio.create_task(failed.come_back())
    await advance(600)
    assert BACK not in failed.notifier.phone()
    failed.is_fresh = True
    failed.notifier.answers["send"] = SendOutcome.RETRY
    await advance(200)
    failed.notifier.answers.clear()
    await advance(100)
    await coming
    assert failed.notifier.phone() == [DEAD, DEAD, BACK, BACK]


async def test_a_directory_that_takes_no_file_costs_the_record_alone(failed: Failed) -> None:
    """The message is sent all the same."""
    failed.path = failed.path.parent / "missing" / failed.path.name
    assert await failed.tell()
    assert failed.notifier.phone() == [DEAD, DEAD]


@pytest.mark.parametrize("text", ["", "{}", '{"dead_unix_s": "x"}'])
async def test_a_damaged_record_is_none(failed: Failed, text: str) -> None:
    """A failure that cannot be read is no failure."""
    failed.path.write_text(text)
    assert read_failure(failed.path) is None
    await failed.come_back()
    assert failed.notifier.phone() == []
