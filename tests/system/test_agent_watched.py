"""Watch over the health agent on a booted box: a hang, a crash loop, a shutdown, a stop by hand."""

import time
from collections.abc import Iterator

import pytest

from tests.system.fleet import Fleet
from tests.system.phone import Phone
from tests.system.rig import Box, Image

HEALTH = "appliance-health.service"
FAILED = "appliance-health-failed.service"
AGAIN = "appliance-health-again.timer"
SILENT = "-box-silent"
DEAD = "-health-agent-dead"


class Watched:
    """A box with a phone, and an agent that has begun its signs of life."""

    def __init__(self, box: Box) -> None:
        self.box = box
        self.phone = Phone(box)
        self.phone.subscribe()

    def due_s(self) -> float | None:
        """Return the time at which "box silent" is delivered; None: nothing is scheduled."""
        scheduled = self.phone.state().get("scheduled", [])
        kept = [one for one in scheduled if one["sequence_id"].endswith(SILENT)]
        return kept[-1]["due_s"] if kept else None

    def shown(self, ending: str) -> list[str]:
        """Return the titles of what was delivered under a sequence id with this ending."""
        return [
            one["title"]
            for one in self.phone.state().get("delivered", [])
            if one["sequence_id"].endswith(ending) and one["event"] == "message"
        ]


@pytest.fixture(scope="module")
def watched(image: Image) -> Iterator[Watched]:
    """The box of all tests here."""
    with Box(image) as box:
        Fleet(box)
        found = Watched(box)
        box.run(f"systemctl restart {HEALTH}")
        yield found


def test_the_phone_keeps_a_message_that_the_box_is_silent(watched: Watched) -> None:
    """The agent has it scheduled soon after its first look, five minutes ahead."""
    watched.phone.until(lambda: watched.due_s() is not None, 30)
    assert 200 < (watched.due_s() or 0.0) - time.time() <= 300


def test_a_stop_by_hand_takes_it_back(watched: Watched) -> None:
    """An agent that a person stops is no dead box; its journal says what that means."""
    watched.box.run(f"systemctl stop {HEALTH}")
    watched.phone.until(lambda: watched.due_s() is None, 10)
    assert "nobody is told of faults" in watched.box.journal("-u", HEALTH)
    assert watched.shown(SILENT) == []
    watched.box.run(f"systemctl start {HEALTH}")
    watched.phone.until(lambda: watched.due_s() is not None, 30)


def test_a_loop_that_hangs_is_ended_by_systemd(watched: Watched) -> None:
    """Only a whole look feeds the watchdog: a process that stands still is killed and started again."""
    drop_in = "[Service]\nWatchdogSec=3s\n"
    watched.box.write(f"/etc/systemd/system/{HEALTH}.d/50-test.conf", drop_in)
    watched.box.run(f"systemctl daemon-reload; systemctl restart {HEALTH}")
    before = watched.box.run(f"systemctl show -P MainPID {HEALTH}").stdout
    watched.box.run(f"systemctl kill -s STOP {HEALTH}")
    watched.box.run(f"rm -r /etc/systemd/system/{HEALTH}.d")
    watched.box.wait_for(
        f"test $(systemctl show -P MainPID {HEALTH}) != {before.strip()}"
        f" && systemctl is-active -q {HEALTH}",
        timeout_s=60,
    )


def test_an_agent_that_cannot_start_is_told_without_it(watched: Watched) -> None:
    """After ten starts it is given up, told, and started again by a timer; then the entry says so."""
    watched.box.write(
        f"/etc/systemd/system/{HEALTH}.d/50-test.conf",
        "[Service]\nExecStart=\nExecStart=/bin/false\nRestartSec=100ms\n",
    )
    watched.box.run(f"systemctl daemon-reload; systemctl reset-failed {HEALTH}")
    watched.box.run(f"systemctl restart {HEALTH}", check=False)
    watched.phone.until(lambda: bool(watched.shown(DEAD)), 40)
    assert watched.shown(DEAD)[0].endswith("the health agent is dead")
    watched.box.wait_for(f"systemctl is-active -q {AGAIN}", timeout_s=5)
    watched.box.run(f"rm -r /etc/systemd/system/{HEALTH}.d; systemctl daemon-reload")
    watched.box.run(f"systemctl reset-failed {HEALTH}; systemctl start {HEALTH}")
    watched.phone.until(lambda: len(watched.shown(DEAD)) > 1, 90)
    assert watched.shown(DEAD)[-1].endswith("the health agent watches again")


def test_a_shutdown_is_no_silence(watched: Watched) -> None:
    """The message is pushed by the time that a reboot takes, before the notifier and the bus end."""
    watched.phone.until(lambda: watched.due_s() is not None, 30)
    watched.box.reboot()
    # The server of before the boot left its last state in a file.
    assert (watched.due_s() or 0.0) - time.time() > 900
    assert watched.shown(SILENT) == []
