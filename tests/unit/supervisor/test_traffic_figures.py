"""Figures of gateway and engines: read in the background, and no more often than need be."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace

import pytest

from appliance.model.gateway import EngineLoad
from appliance.supervisor.traffic_figures import TrafficFigures
from appliance.supervisor.unit_memory import StatusReader
from appliance.wire.json_values import object_in
from tests.fakes.profiles import applied, catalogue
from tests.fakes.supervisor_ports import FakePorts
from tests.waiting import settle

BOX = catalogue(applied("aeon", "gpu-all"), applied("embedder"))
SERVING = ("aeon",)


def figures_of(fakes: FakePorts) -> TrafficFigures:
    return TrafficFigures(
        lambda: (BOX, fakes.systemd.observed(BOX)),
        gateway=fakes.gateway,
        backend=fakes.backend,
        clock=fakes.clock,
    )


def loaded(fakes: FakePorts, queued: int) -> None:
    fakes.backend.loads["aeon"] = EngineLoad(queued=queued)


async def loads(figures: TrafficFigures, *serving: str) -> Mapping[str, EngineLoad | None]:
    """Return the loads that a status has, once the asked engines have answered."""
    shown = (await figures.latest(BOX, serving or SERVING)).loads
    await settle()
    return shown


async def test_a_status_does_not_ask_the_gateway() -> None:
    """A status gets the last figures, with their age, also of a gateway that has gone since."""
    fakes = FakePorts(BOX)
    figures = figures_of(fakes)
    await figures.turn()
    fakes.gateway.away = True
    fakes.systemd.now_s += 1.5
    latest = await figures.latest(BOX, ())
    assert latest.stats is not None
    assert latest.age_s == 1.5
    await figures.turn()
    assert (await figures.latest(BOX, ())).stats is None


async def test_figures_that_are_known_ask_nobody() -> None:
    """A process that watches gets what was read for others: nothing at first, and then its age."""
    fakes = FakePorts(BOX)
    figures = figures_of(fakes)
    loaded(fakes, 3)
    assert figures.known(SERVING) is None
    await figures.turn()
    asked = fakes.gateway.questions
    fakes.systemd.now_s += 100.0
    known = figures.known(SERVING)
    await settle()
    assert known is not None
    assert (known.age_s, known.loads) == (100.0, {"aeon": None})
    assert fakes.gateway.questions == asked
    # Nor is the gateway read more often from then on.
    await figures.turn()
    known = figures.known(SERVING)
    assert known is not None
    assert known.loads_age_s is None


async def test_fresh_figures_are_read_once_a_second() -> None:
    """Many collectors cost the gateway no more than one does, and see at once that it has gone."""
    fakes = FakePorts(BOX)
    figures = figures_of(fakes)
    for _ in range(5):
        assert await figures.counters() is not None
    assert fakes.gateway.questions == 1
    fakes.systemd.now_s += 1.5
    fakes.gateway.away = True
    assert await figures.counters() is None


async def test_the_first_status_waits_for_the_gateway() -> None:
    """The first status waits for figures, and stale ones of a stopped loop are not shown."""
    fakes = FakePorts(BOX)
    figures = figures_of(fakes)
    assert (await figures.latest(BOX, ())).age_s == 0.0
    fakes.gateway.away = True
    fakes.systemd.now_s += 5.0
    assert (await figures.latest(BOX, ())).stats is None


@pytest.mark.parametrize(("watched", "asked"), [(True, [2, 3]), (False, [1, 2])])
async def test_the_gateway_is_asked_rarely_while_nobody_looks(
    watched: bool,  # noqa: FBT001
    asked: list[int],
) -> None:
    """The gateway is asked every 2 s for a minute after a status, and else every 12 s."""
    fakes = FakePorts(BOX)
    figures = figures_of(fakes)
    await figures.turn()
    if watched:
        await figures.latest(BOX, ())
    counts = []
    for passed_s in (2.0, 10.0):
        fakes.systemd.now_s += passed_s
        loop = asyncio.create_task(figures.run())
        await settle()
        loop.cancel()
        await asyncio.gather(loop, return_exceptions=True)
        counts.append(fakes.gateway.questions)
    assert counts == asked


async def test_a_reading_for_the_stall_watch_serves_here_too() -> None:
    """The loop does not ask again what was asked moments ago for another reason."""
    fakes = FakePorts(BOX)
    figures = figures_of(fakes)
    assert await figures.stats() is not None
    loop = asyncio.create_task(figures.run())
    await settle()
    loop.cancel()
    await asyncio.gather(loop, return_exceptions=True)
    assert fakes.gateway.questions == 1


async def test_engines_are_asked_once_somebody_looks_and_not_again_at_once() -> None:
    """A status waits for no engine: the first one has no loads, the second one has."""
    fakes = FakePorts(BOX)
    figures = figures_of(fakes)
    loaded(fakes, 1)
    assert await loads(figures) == {"aeon": None}
    assert await loads(figures) == {"aeon": EngineLoad(queued=1)}
    loaded(fakes, 2)
    assert await loads(figures) == {"aeon": EngineLoad(queued=1)}
    fakes.systemd.now_s += 6.0
    await loads(figures)
    assert await loads(figures) == {"aeon": EngineLoad(queued=2)}


async def test_an_engine_that_began_to_serve_is_asked() -> None:
    """An engine that began to serve has no figures on record yet, and is asked."""
    fakes = FakePorts(BOX)
    figures = figures_of(fakes)
    await loads(figures)
    fakes.backend.loads["embedder"] = EngineLoad(queued=3)
    assert (await loads(figures, "aeon", "embedder"))["embedder"] is None
    assert (await loads(figures, "aeon", "embedder"))["embedder"] == EngineLoad(queued=3)


async def test_engines_are_asked_while_they_have_requests() -> None:
    """Engines with requests are asked, so that their figures are ready; an idle engine is not."""
    fakes = FakePorts(BOX)
    fakes.serve("aeon")
    figures = figures_of(fakes)
    loaded(fakes, 1)
    await figures.turn()
    await settle()
    assert (await figures.latest(BOX, SERVING)).loads == {"aeon": None}
    fakes = FakePorts(BOX)
    fakes.serve("aeon")
    fakes.gateway.figures["aeon"] = {"in_flight": 1}
    figures = figures_of(fakes)
    loaded(fakes, 1)
    await figures.turn()
    await settle()
    latest = await figures.latest(BOX, SERVING)
    assert (latest.loads, latest.loads_age_s) == ({"aeon": EngineLoad(queued=1)}, 0.0)


async def test_a_scrape_asks_once_and_nobody_asks_in_between() -> None:
    """Scraped every 15 s, gateway and engines are asked once a scrape, which has the answers to the one before."""
    fakes = FakePorts(BOX)
    figures = figures_of(fakes)
    shown = []
    for scrape in range(4):
        loaded(fakes, scrape)
        shown.append((await figures.latest(BOX, SERVING, StatusReader.SCRAPER)).loads["aeon"])
        await settle()
        loaded(fakes, 99)  # which an engine would tell if it were asked in between
        fakes.systemd.now_s += 7.0
        loop = asyncio.create_task(figures.run())
        await settle()
        loop.cancel()
        await asyncio.gather(loop, return_exceptions=True)
        fakes.systemd.now_s += 8.0
    assert shown == [EngineLoad(queued=load) for load in (0, 0, 1, 2)]
    assert fakes.gateway.questions == 4


async def test_a_rare_scrape_waits_a_moment_for_engines() -> None:
    """Where nothing is left to show, an engine that answers at once is shown, and one that is busy is not."""
    fakes = FakePorts(BOX)
    figures = figures_of(fakes)
    loaded(fakes, 1)
    assert (await figures.latest(BOX, SERVING, StatusReader.SCRAPER)).loads["aeon"] == EngineLoad(
        queued=1
    )
    fakes.systemd.now_s += 60.0
    fakes.backend.answers.clear()
    latest = await figures.latest(BOX, SERVING, StatusReader.SCRAPER)
    assert (latest.loads, latest.loads_age_s) == ({"aeon": None}, None)
    fakes.backend.answers.set()
    await settle()


async def test_figures_of_engines_are_not_shown_for_ever() -> None:
    """Figures of half a minute ago are not shown."""
    fakes = FakePorts(BOX)
    figures = figures_of(fakes)
    loaded(fakes, 1)
    await loads(figures)
    fakes.backend.answers.clear()
    fakes.systemd.now_s += 29.0
    assert await loads(figures) == {"aeon": EngineLoad(queued=1)}
    fakes.systemd.now_s += 1.0
    latest = await figures.latest(BOX, SERVING)
    assert (latest.loads, latest.loads_age_s) == ({"aeon": None}, None)
    fakes.backend.answers.set()
    await loads(figures)


PROMPTS: dict[str, object] = {"prompt_tokens": 124, "cached_tokens": 0, "in_flight": 1}


def engine_box(engine: str) -> tuple[FakePorts, TrafficFigures]:
    """A profile of that engine serves, and its responses have told a little of their prompts."""
    box = catalogue(replace(applied("aeon", "gpu-all"), engine=engine))
    fakes = FakePorts(box)
    fakes.serve("aeon")
    fakes.gateway.figures["aeon"] = PROMPTS
    figures = TrafficFigures(
        lambda: (box, fakes.systemd.observed(box)),
        gateway=fakes.gateway,
        backend=fakes.backend,
        clock=fakes.clock,
    )
    return fakes, figures


async def cached(fakes: FakePorts, figures: TrafficFigures, load: EngineLoad | None) -> object:
    """Return the prompt tokens and the cached ones that a scrape shows when the engine tells so."""
    fakes.systemd.now_s += 60.0
    fakes.backend.loads = {} if load is None else {"aeon": load}
    counters = await figures.counters()
    assert counters is not None
    row = object_in(object_in(counters, "profiles"), "aeon")
    assert row["in_flight"] == 1
    return row["prompt_tokens"], row["cached_tokens"]


@pytest.mark.parametrize(
    ("engine", "silent"), [("vllm", (None, None)), ("sglang", (None, None)), ("command", (124, 0))]
)
async def test_the_prefix_cache_is_counted_by_the_engine(engine: str, silent: object) -> None:
    """The counters never alternate with those of responses, so only a restart of the engine is a reset."""
    fakes, figures = engine_box(engine)
    assert await cached(fakes, figures, None) == silent
    own = EngineLoad(prefix_queries=22752, prefix_hits=6272)
    assert await cached(fakes, figures, own) == (22752, 6272)
    assert await cached(fakes, figures, None) == (None, None)
    again = EngineLoad(prefix_queries=10, prefix_hits=0)
    assert await cached(fakes, figures, again) == (10, 0)


async def test_where_an_engine_does_not_count_its_responses_tell() -> None:
    """Llama-server tells of each response how much of its prompt was cached, and has no counter."""
    fakes, figures = engine_box("llama-server")
    assert await cached(fakes, figures, EngineLoad(running=1)) == (124, 0)
    assert await cached(fakes, figures, None) == (124, 0)
