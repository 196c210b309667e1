"""Last answers of the daemons: fresh enough for whoever looks, and asked for no more often than that."""

from functools import partial

from appliance.model.errors import UnreachableError
from appliance.web.live_box import FRESH_S, LastAnswer


class Daemon:
    """Daemon that counts what it is asked."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.asked: list[str] = []
        self.is_away = False

    async def ask(self, way: str) -> int:
        self.asked.append(way)
        if self.is_away:
            raise UnreachableError("away")
        return len(self.asked)


def answer_of(daemon: Daemon) -> LastAnswer[int]:
    return LastAnswer(partial(daemon.ask, "usual"), now_s=lambda: daemon.now_s)


async def test_a_fresh_answer_is_not_asked_for_again() -> None:
    """One question a second, whoever looks; a failure is told by the age of the last answer."""
    daemon = Daemon()
    answer = answer_of(daemon)
    assert [await answer.get() for _ in range(3)] == [(1, 0.0)] * 3
    daemon.now_s += FRESH_S
    assert await answer.get() == (2, 0.0)
    daemon.is_away = True
    daemon.now_s += 5.0
    assert [await answer.get() for _ in range(2)] == [(2, 5.0)] * 2
    assert len(daemon.asked) == 3


async def test_the_usual_answer_is_not_enough_for_a_person() -> None:
    """A person's look reaches the daemon right after a collector's, and serves collectors that come then."""
    daemon = Daemon()
    answer, person = answer_of(daemon), partial(daemon.ask, "person")
    await answer.get()
    assert await answer.get(person) == (2, 0.0)
    assert await answer.get(person) == (2, 0.0)
    assert await answer.get() == (2, 0.0)
    assert daemon.asked == ["usual", "person"]
    daemon.now_s += FRESH_S
    await answer.get()
    assert daemon.asked == ["usual", "person", "usual"]
