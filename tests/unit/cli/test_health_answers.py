"""Commands about measurements, answered by the health agent's own server and store."""

import asyncio
import csv
import io
import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from appliance.cli.speed_question import SpeedQuestion
from appliance.model.measurements import EventKind, MeasurementEvent
from appliance.model.words import Series
from appliance.system.sqlite.measurement_store import MeasurementStore
from tests.fakes.cli_box import CliBox
from tests.fakes.cli_call import call
from tests.fakes.health_thread import HealthThread, health_thread
from tests.fakes.probe_rows import probe
from tests.fakes.profiles import applied

HOUR_S = 3600.0
PROBES = 8
LOSS = MeasurementEvent(
    unix_s=time.time() - HOUR_S,
    profile="genesis",
    kind=EventKind.REGRESSION,
    series=Series.DECODE,
    text="slow: 27.1 tok/s (was 41.0)",
)


async def fill(database: Path) -> None:
    store = MeasurementStore(database)
    await store.open()
    for number in range(PROBES):
        await store.add(probe=probe(time.time() - (PROBES - number) * 900))
    await store.add(events=[LOSS])
    await store.close()


@pytest.fixture
def agent(here: CliBox) -> Iterator[HealthThread]:
    database = here.root / "measurements.sqlite"
    asyncio.run(fill(database))
    catalogue = {"genesis": applied("genesis")}
    with health_thread(here.health_socket, database, catalogue) as thread:
        yield thread


@pytest.mark.usefixtures("agent")
def test_commands_read_what_the_agent_answers() -> None:
    """History, raw probes, events and baselines come through the real socket as they are shown."""
    history = call("history", "--since", "12h")
    assert history.out.startswith("genesis · decode, steps/s · baseline 27.0 steps/s\n")
    assert "▼ genesis decode: slow: 27.1 tok/s (was 41.0)" in history.out
    rows = list(csv.DictReader(io.StringIO(call("history", "genesis", "--csv").out)))
    assert [row["series"] for row in rows] == ["decode"] * PROBES + ["prefill"] * PROBES
    assert {row["median"] for row in rows} == {"50.0", "2000.0"}
    assert len(call("history", "genesis", "--raw", "--json").out.splitlines()) == PROBES
    (event,) = call("events", "--json").out.splitlines()
    assert json.loads(event)["text"] == LOSS.text
    assert call("baseline", "show").out == "genesis\ndecode   27.0 steps/s\n"
    assert call("history", "genesi").err == 'no profile "genesi". Did you mean "genesis"?\n'


def test_commands_change_what_the_agent_has(agent: HealthThread) -> None:
    """A probe is told as it goes on, an accept reaches the monitor with the user's name."""
    probed = call("probe")
    assert (probed.status, probed.err.count("ended")) == (0, 1)
    assert probed.out == "genesis  decode 54.0 tok/s\n"
    assert call("baseline", "accept", "--yes").out == "the baseline of genesis is accepted\n"
    ((change, by),) = agent.speeds["genesis"].changes
    assert change == "accept"
    assert by
    answer = SpeedQuestion(str(agent.path), within_s=60.0).answer()
    assert answer["profiles"]["genesis"]["last_outcome"] == "valid"
