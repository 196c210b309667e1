"""Engines that owe answers and do nothing."""

import pytest

from appliance.status.stalls import Activity, Look, Stall, seen, stall, stall_words
from tests.fakes.profiles import applied, catalogue
from tests.fakes.supervisor_ports import FakePorts

BOX = catalogue(applied("aeon", "gpu-all"), applied("genesis", "gpu-all"))
QUIET = {"in_flight": 3, "quiet_s": 200.0}


def watched(*cpu_s: float | None, every_s: float = 10.0) -> Activity:
    """A look every 10 s, with the CPU time that each found."""
    activity = None
    for number, used_s in enumerate(cpu_s):
        activity = seen(activity, Look(at_s=number * every_s, cpu_s=used_s))
    assert activity is not None
    return activity


@pytest.mark.parametrize(
    ("cpu_s", "figures", "quiet_s"),
    [
        ([1.0] * 4, QUIET, 30.0),
        ([1.0] * 3, QUIET, None),  # not watched for long enough
        ([1.0] * 20, {"in_flight": 3, "quiet_s": 95.0}, 95.0),
        ([1.0] * 20, {"in_flight": 3, "quiet_s": 29.0}, None),  # a byte came
        ([1.0] * 20, {"in_flight": 3, "quiet_s": None}, None),  # nothing is owed
        ([1.0] * 20, {"in_flight": 0, "quiet_s": 200.0}, None),
        ([1.0] * 20, {}, None),
        ([0.1 * n for n in range(20)], QUIET, 190.0),  # an API process that answers its health
        ([1.0 * n for n in range(20)], QUIET, None),  # a long prefill, a deep queue
        ([*[1.0] * 18, 2.0, 2.0], QUIET, None),  # it goes on
        ([*[5.0] * 15, *[0.0] * 3], QUIET, None),  # another start
        ([None] * 20, QUIET, None),  # not counted
        ([1.0, *[None] * 18, 1.0], QUIET, None),
    ],
)
def test_no_byte_and_no_cpu_is_a_stall(
    cpu_s: list[float | None], figures: dict[str, object], quiet_s: float | None
) -> None:
    """Both are needed, for long enough, and of an engine that owes bytes."""
    found = stall(watched(*cpu_s), figures)
    assert found == (None if quiet_s is None else Stall(in_flight=3, quiet_s=quiet_s))


@pytest.mark.parametrize(("in_flight", "words"), [(1, "1 request"), (3, "3 requests")])
def test_words_of_a_stall(in_flight: int, words: str) -> None:
    """The text has the number of requests that wait, and for how long."""
    told = stall_words(Stall(in_flight=in_flight, quiet_s=95.4))
    assert told == f"no progress: {words} in flight, no byte and no CPU for 95 s"


async def test_a_frozen_engine_is_found_and_forgotten() -> None:
    """Serving profiles are sampled every few seconds; a figure that is missing finds none."""
    fakes = FakePorts(BOX, "aeon")
    fakes.serve("aeon")
    fakes.units.used_s["aeon"] = 4.0
    watch = fakes.stall_watch(lambda: (BOX, fakes.systemd.observed(BOX)))

    async def looks(count: int) -> None:
        for _ in range(count):
            fakes.systemd.now_s += 10.0
            for figures in fakes.gateway.figures.values():
                figures["quiet_s"] = float(str(figures["quiet_s"])) + 10.0
            await watch.turn()

    await looks(20)
    assert watch.stalls() == {}
    fakes.gateway.figures["aeon"] = {"in_flight": 2, "quiet_s": 0.0}
    await looks(2)
    assert watch.stalls() == {}
    await looks(1)
    assert watch.stalls() == {"aeon": Stall(in_flight=2, quiet_s=30.0)}
    fakes.units.deaf = True
    await looks(1)
    assert watch.stalls() == {}
    fakes.units.deaf = False
    await looks(5)
    assert "aeon" in watch.stalls()
    fakes.gateway.away = True
    await looks(1)
    assert watch.stalls() == {}
    fakes.gateway.away = False
    fakes.systemd.stop("aeon")
    fakes.systemd.advance(fakes.systemd.now_s + 60)
    await looks(1)
    assert watch.stalls() == {}
