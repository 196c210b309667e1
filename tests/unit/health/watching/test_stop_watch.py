"""Watch over stops of live profiles in the supervisor's documents."""

import time
from pathlib import Path

import pytest

from appliance.alerts.book import AlertPolicy
from appliance.alerts.evaluation import evaluate
from appliance.alerts.inhibition import AlertCircumstances
from appliance.alerts.silences import unsilence
from appliance.health.watching.stop_watch import StopWatch
from appliance.model.alerts import Subject, SubjectKind
from appliance.model.status import StatusDocument
from tests.fakes.supervisor_documents import as_status
from tests.fakes.watched_alerts import WatchedAlerts, watched_alerts

GENESIS = Subject(kind=SubjectKind.PROFILE, name="genesis")


def document(state: str = "stopped", mark: str | None = "live", **last: object) -> StatusDocument:
    """Return a status document after a stop of genesis."""
    operation = {
        "id": 7,
        "kind": "stop",
        "profiles": ["genesis"],
        "outcome": "done",
        "finished_unix_s": time.time(),
        **last,
    }
    row = {"name": "genesis", "state": state, "mark": mark}
    return as_status({"profiles": [row], "last_operation": operation})


def silenced(box: WatchedAlerts) -> list[tuple[str, str]]:
    return [(each.subject.name, each.by) for each in box.book.silences]


async def test_a_stop_of_a_live_profile_is_silent_until_the_next_start(tmp_path: Path) -> None:
    """Further documents of the same stop change nothing; a load already ends it."""
    async with watched_alerts(tmp_path) as box:
        watch = StopWatch(box.watchdog)
        for _ in range(2):
            await watch.take(document())
        assert silenced(box) == [("genesis", "a stop")]
        await watch.take(document("loading"))
        assert silenced(box) == []


@pytest.mark.parametrize(
    "told",
    [
        document(mark="standby"),
        document(mark=None),
        document("serving"),
        document(kind="switch"),
        document(outcome="failed"),
        document(finished_unix_s=time.time() - 3 * 3600),
        document(profiles=["aeon"]),
        StatusDocument(),
    ],
)
async def test_other_documents_make_no_silence(tmp_path: Path, told: StatusDocument) -> None:
    """Another mark, another operation, an old one, one that failed, or none."""
    async with watched_alerts(tmp_path) as box:
        await StopWatch(box.watchdog).take(told)
        assert silenced(box) == []


async def test_an_operator_may_end_it(tmp_path: Path) -> None:
    """The silence is not made again for the same stop, but for the next one."""
    async with watched_alerts(tmp_path) as box:
        watch = StopWatch(box.watchdog)
        await watch.take(document())
        await box.watchdog.change(lambda book, now: unsilence(book, GENESIS, "ana", now))
        await watch.take(document())
        assert silenced(box) == []
        await watch.take(document(id=8))
        assert silenced(box) == [("genesis", "a stop")]


@pytest.mark.parametrize(("ago_s", "count"), [(30.0, 1), (90.0, 0)])
async def test_a_new_agent_leaves_what_the_old_one_has_seen(
    tmp_path: Path, ago_s: float, count: int
) -> None:
    """A stop of a minute before the last look was seen; a later one may not have been."""
    async with watched_alerts(tmp_path) as box:
        await box.watchdog.change(
            lambda book, now: evaluate(book, (), AlertCircumstances(), AlertPolicy(), now)
        )
        await StopWatch(box.watchdog).take(document(finished_unix_s=time.time() - ago_s))
        assert len(silenced(box)) == count


async def test_a_store_that_fails_is_tried_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The next document of the same stop makes the silence."""
    async with watched_alerts(tmp_path) as box:
        watch = StopWatch(box.watchdog)
        names = [f"p{n}" for n in range(300)]
        rows = [{"name": name, "state": "stopped", "mark": "live"} for name in names]
        many = document(profiles=names).replaced(profiles=as_status({"profiles": rows}).profiles)
        await watch.take(many)
        assert "a stop is not silenced: 200 silences are in force" in caplog.text
        assert silenced(box) == []
        await watch.take(document())
        assert silenced(box) == [("genesis", "a stop")]
