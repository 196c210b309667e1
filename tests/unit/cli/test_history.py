"""`history`: tables by the reader's calendar, CSV, JSON, raw probes and a plot."""

import csv
import io
import json
import time
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from appliance.model.measurements import (
    EventKind,
    MeasurementEvent,
)
from appliance.model.speeds import BaselineReport, SeriesBaseline
from appliance.model.words import ProbeOutcome, Series
from appliance.status.history import RateSummary, summarise
from appliance.wire.alert_requests import MOST_RECORDS
from appliance.wire.conversation import ErrorEvent, ResultEvent
from appliance.wire.health_socket import StoredProbeEvent
from tests.fakes.cli_box import CliBox
from tests.fakes.cli_call import call
from tests.fakes.health_server import FakeHealthAgent, report, speeds
from tests.fakes.probe_rows import probe

DAY_S = 86400.0
HOUR_S = 3600.0
MONDAY = 1_794_787_200.0
"""Monday, 16 November 2026, at midnight of UTC."""
BASELINE = BaselineReport(
    profile="genesis",
    series=(
        SeriesBaseline(
            series=Series.DECODE,
            phase="regressed",
            baseline=41.0,
            band=1.2,
            accepted_unix_s=MONDAY - 14 * DAY_S,
        ),
        SeriesBaseline(series=Series.PREFILL, phase="learning"),
    ),
)
LOSS = MeasurementEvent(
    id=1,
    unix_s=MONDAY + DAY_S + 4 * HOUR_S + 600,
    profile="genesis",
    kind=EventKind.REGRESSION,
    series=Series.DECODE,
    text="slow: 27.1 tok/s (was 41.0)",
)
DAMAGE = LOSS.replaced(id=2, profile="", kind=EventKind.STORE_RECOVERED, series=None, text="")


@pytest.fixture(autouse=True)
def socket(here: CliBox) -> Path:
    """Return the agent's socket."""
    return here.health_socket


def rows(hours: int, begin: float = MONDAY) -> list[RateSummary]:
    """Return an hour's row each: 41 steps a second, 27 from 04:00 of the second day on."""
    rates = [41.0 if hour < 28 else 27.1 for hour in range(hours)]
    return [
        summarise(begin + hour * HOUR_S, [rate, rate, rate, rate])
        for hour, rate in enumerate(rates)
    ]


def answer(
    decode: list[RateSummary],
    *events: MeasurementEvent,
    prefill: list[RateSummary] | None = None,
    baseline: BaselineReport | None = BASELINE,
) -> ResultEvent:
    """Return the agent's answer to `history`."""
    return ResultEvent(
        details={
            "rows": {"decode": decode, "prefill": prefill or []},
            "baseline": None if baseline is None else msgspec.to_builtins(baseline),
            "events": [event.fields() for event in events],
        }
    )


def test_days_with_their_hours(socket: Path) -> None:
    """A line a day: probes, rates, the change from the baseline, and a bar for each hour."""
    with FakeHealthAgent(socket, {"history": [answer(rows(48), LOSS, DAMAGE)]}) as agent:
        ended = call("history", "genesis")
    (request,) = agent.requests
    assert ended.out.splitlines() == [
        "genesis · decode, steps/s · baseline 41.0 ±1.2 steps/s, accepted Mon 02 Nov 00:00",
        "            probes   low  median  high  change  hours",
        f"Mon 16 Nov      96  41.0    41.0  41.0  +0.0 %  {'▇' * 24}",
        f"Tue 17 Nov      96  27.1    27.1  41.0   −34 %  {'▇' * 4}{'▃' * 20}",  # noqa: RUF001
        "  Tue 17 Nov 04:10  ▼ genesis decode: slow: 27.1 tok/s (was 41.0)",
        "",
        "Tue 17 Nov 04:10  · store recovered",
    ]
    args = request["args"]
    assert isinstance(args, dict)
    assert (args["name"], args["series"], args["span_s"]) == ("genesis", None, HOUR_S)
    assert args["since_unix_s"] == pytest.approx(time.time() - 7 * DAY_S, abs=60)


@pytest.mark.parametrize(
    ("since", "span_s", "label", "bars"),
    [
        ("36h", None, "Mon 16 Nov 00:00", "▇···"),
        ("90d", 6 * HOUR_S, "week of 16 Nov", "▇▇▇▇▇▇▇"),
        ("800d", DAY_S, "Nov 2026", f"{'·' * 15}{'▇' * 15}·"),
    ],
)
def test_the_unit_follows_from_the_length(
    socket: Path, since: str, span_s: float | None, label: str, bars: str
) -> None:
    """Hours with quarters, weeks and months with days; a cell without a probe is a dot."""
    found = [summarise(MONDAY + hour * HOUR_S, [41.0]) for hour in range(15 * 24)]
    with FakeHealthAgent(socket, {"history": [answer(found)]}) as agent:
        ended = call("history", "genesis", "--since", since, "--series", "decode")
    line = ended.out.splitlines()[2]
    assert line.startswith(label)
    assert line.endswith(f"  {bars}")
    args = agent.requests[0]["args"]
    assert isinstance(args, dict)
    assert (args["series"], args["span_s"]) == ("decode", span_s)


def test_a_series_without_a_baseline(socket: Path) -> None:
    """Both series have a table; without a baseline there is no change, and the bars are relative."""
    found = answer(rows(1), prefill=[summarise(MONDAY, [1850.0])])
    with FakeHealthAgent(socket, {"history": [found]}):
        lines = call("history", "genesis").out.splitlines()
    assert lines[3:5] == [
        "",
        "genesis · prefill, tok/s · no baseline yet: it is being learned",
    ]
    assert lines[6].split() == ["Mon", "16", "Nov", "1", "1850", "1850", "1850", f"▇{'·' * 23}"]


def test_nothing_is_measured(socket: Path) -> None:
    """A profile without valid probes is told so, with the command that says why."""
    with FakeHealthAgent(socket, {"history": [answer([], baseline=None)]}):
        ended = call("history", "genesis", "--since", "12h")
    assert ended.out == "no valid probe of genesis in the last 12 h: appliance status\n"
    assert ended.status == 0


def test_rows_for_programs(socket: Path) -> None:
    """CSV has each row that travelled, JSON the answer; neither is joined by the calendar."""
    with FakeHealthAgent(socket, {"history": [answer(rows(2), LOSS)]}) as agent:
        table = list(csv.DictReader(io.StringIO(call("history", "genesis", "--csv").out)))
        document = json.loads(call("history", "genesis", "--json").out)
    assert [row["time"] for row in table] == ["2026-11-16T00:00:00Z", "2026-11-16T01:00:00Z"]
    assert table[0] | {"time": ""} == {
        "time": "",
        "series": "decode",
        "unix_s": str(MONDAY),
        "probes": "4",
        "low": "41.0",
        "median": "41.0",
        "high": "41.0",
    }
    assert document["rows"]["decode"][1] == [MONDAY + HOUR_S, 4, 41.0, 41.0, 41.0]
    assert document["events"][0]["kind"] == "regression"
    assert all(request["args"]["span_s"] is None for request in agent.requests)  # type: ignore[index]


def test_damaged_rows_are_left_out(socket: Path) -> None:
    """An answer of another release, and times beyond every calendar, cost no more than themselves."""
    (good,) = rows(1)
    odd: list[object] = [[1.0], 7, [1e300, 1, 1.0, 1.0, 1.0], ["x", *good[1:]], good]
    late = LOSS.replaced(unix_s=1e300).fields()
    details = {"rows": {"decode": odd, "depth": 3}, "events": [late, 5]}
    with FakeHealthAgent(socket, {"history": [ResultEvent(details=details)]}):
        ended = call("history", "genesis")
        table = call("history", "genesis", "--csv")
    assert ended.status == 0
    assert [line[:10] for line in ended.out.splitlines()[2:]] == ["Mon 16 Nov", "  Wed 16 N"]
    assert table.out.count("\n") == 2


def test_the_profile_that_was_measured_last_needs_no_name(socket: Path) -> None:
    """Where profiles take turns it is the one that serves, or served last."""
    several = speeds(
        report("genesis", MONDAY), report("aeon", MONDAY - 60), report("new", MONDAY, series=())
    )
    never = several.details["profiles"]["new"]  # type: ignore[index]
    never["last_probe_unix_s"] = None
    with FakeHealthAgent(socket, {"history": [answer(rows(1))], "speeds": [several]}) as agent:
        assert call("history").out.startswith("genesis · decode")
    assert agent.requests[-1]["args"]["name"] == "genesis"  # type: ignore[index]
    socket.unlink()
    with FakeHealthAgent(socket, {"speeds": [speeds()]}):
        ended = call("history")
    assert (ended.status, ended.err) == (
        1,
        "no profile is measured now: appliance history --help\n",
    )


def test_raw_probes_come_page_by_page(socket: Path) -> None:
    """Each page ends where the newer one begins, and the oldest probe is first."""
    failed = replace(probe(MONDAY), outcome=ProbeOutcome.FAILED, raw=None, detail="no answer")
    newer = [StoredProbeEvent.of(probe(MONDAY + 60 + n)) for n in range(MOST_RECORDS)]
    pages = ([*newer, ResultEvent()], [StoredProbeEvent.of(failed), ResultEvent()])
    with FakeHealthAgent(socket, {}, turns={"measurements": [*pages, *pages]}) as agent:
        table = list(csv.DictReader(io.StringIO(call("history", "genesis", "--raw").out)))
        lines = call("history", "genesis", "--raw", "--json").out.splitlines()
    assert agent.requests[1]["args"]["until_unix_s"] == MONDAY + 60  # type: ignore[index]
    assert len(table) == len(lines) == MOST_RECORDS + 1
    assert (table[0]["outcome"], table[0]["decode_s"], table[0]["detail"]) == (
        "failed",
        "",
        "no answer",
    )
    assert (table[1]["decode_s"], table[1]["decode_steps_per_s"]) == ("4.0", "50.0")
    assert table[1]["time"] == "2026-11-16T00:01:00Z"
    assert json.loads(lines[1])["evidence"]["driver"] == "550.127.05"


def test_a_plot_is_an_svg_file(socket: Path, tmp_path: Path) -> None:
    """Baseline, band and losses are drawn; the file asks no server for anything."""
    path = tmp_path / "speed.svg"
    with FakeHealthAgent(socket, {"history": [answer(rows(48), LOSS)]}):
        ended = call("history", "genesis", "--plot", str(path))
    assert (ended.status, ended.err) == (0, f"plotted: {path}\n")
    text = path.read_text()
    assert "genesis: decode" in text
    assert "baseline 41.0" in text
    assert "slow: 27.1 tok/s (was 41.0)" in text
    assert "href=" not in text


def test_a_plot_that_cannot_be_made(socket: Path, tmp_path: Path) -> None:
    """A missing folder, and a history without rows, are told in one line."""
    with FakeHealthAgent(socket, {"history": [answer(rows(1))]}):
        ended = call("history", "genesis", "--plot", str(tmp_path / "no" / "a.svg"))
    assert (ended.status, ended.err.count("\n")) == (1, 1)
    assert "No such file or directory" in ended.err
    socket.unlink()
    with FakeHealthAgent(socket, {"history": [answer([])]}):
        ended = call("history", "genesis", "--plot", str(tmp_path / "a.svg"))
    assert ended.err == "no valid probe of genesis in that time\n"


@pytest.mark.parametrize(
    ("words", "status", "error"),
    [
        (("nobody",), 4, 'no profile "nobody": appliance list --all\n'),
        (("a", "--json", "--csv"), 2, "--json is another form: leave --csv and --plot out\n"),
    ],
)
def test_errors(socket: Path, words: tuple[str, ...], status: int, error: str) -> None:
    """The exit status is that of the kind of error."""
    refusal = ErrorEvent("unknown-profile", 'no profile "nobody": appliance list --all')
    with FakeHealthAgent(socket, {"history": [refusal], "measurements": [refusal]}):
        ended = call("history", *words)
    assert (ended.status, ended.err) == (status, error)


@pytest.mark.parametrize("more", [(), ("--raw",)])
def test_without_an_agent(more: tuple[str, ...]) -> None:
    """The error names the command that starts it."""
    ended = call("history", "genesis", *more)
    assert (ended.status, ended.err) == (
        69,
        "health agent not running: sudo systemctl start appliance-health\n",
    )
