"""Views of the page: what it shows, apart from HTML."""

import math

import pytest

from appliance.model.operations import Kind, Phase
from appliance.model.speeds import BaselineReport, SeriesBaseline
from appliance.model.status import MemoryRow, OperationRow
from appliance.model.words import Series
from appliance.presentation.speed_history import SpeedHistory
from appliance.presentation.status_markdown import markdown_lines
from appliance.status.history import RateSummary
from appliance.web.box_documents import BoxDocuments
from appliance.web.page.cards import memory_bars, operation_view, traffic_cards
from appliance.web.page.charts import MOST_MARKERS, MOST_POINTS, ChartMark, rate_chart
from appliance.web.page.view import PageDocuments, page_view, status_document
from appliance.wire.typed_json import from_json
from tests.fakes.supervisor_documents import as_status
from tests.pins import status_documents
from tests.pins.status_box import GIB, STATES

NOW = 1_800_000_000.0
WEEK_S = 7 * 86_400.0


def test_markdown_is_that_of_the_command() -> None:
    """A person who copies it from the page, and one who runs the command, have the same text."""
    status, _ = status_documents.observe(STATES["GPUs"])
    box = BoxDocuments(unix_s=NOW, status=as_status(status), status_age_s=0.1)
    expected = "\n".join(markdown_lines(status_document(box, as_status(status)), now=NOW))
    assert page_view(PageDocuments(box=box)).markdown == expected
    assert "Not known: the health agent does not answer." in expected


def test_bars_of_memory_fit_their_gpu() -> None:
    """Holders of more than the GPU has, as a driver may count shared memory, leave the bar full and no more."""
    holders = [
        {"profile": None, "comm": f"p{n}", "pid": n, "held_bytes": 9 * GIB} for n in range(1, 8)
    ]
    gpu = {
        "index": 0,
        "name": "RTX",
        "uuid": "GPU-0",
        "total_bytes": 24 * GIB,
        "used_bytes": 23 * GIB,
        "holders": [*holders, {"profile": "aeon", "pid": 9, "held_bytes": None}],
    }
    sample = {"evidence": {"uuid": "GPU-0", "power_w": 120.4, "temperature_c": 61}}
    [bar] = memory_bars(from_json(MemoryRow, {"gpus": [gpu]}), {"gpus": [sample]})
    assert bar.amount == "23.0 of 24.0 GiB"
    assert bar.note == "61 °C · 120 W"
    assert sum(share.width for share in bar.shares) == pytest.approx(100, abs=0.1)
    assert all(0 <= share.begin <= share.begin + share.width <= 100.02 for share in bar.shares)
    assert [share.label for share in bar.shares][-1] == "4 more"
    assert bar.shares[-1].fill == "fill-rest"


@pytest.mark.parametrize("kind", list(Kind))
@pytest.mark.parametrize("phase", [*Phase, "a phase of another release"])
def test_every_operation_has_one_step_of_now(kind: Kind, phase: str) -> None:
    """Steps before it are done and those after it are next, whatever the kind."""
    document = {
        "id": 3,
        "kind": kind.value,
        "target": ["aeon"],
        "phase": str(phase),
        "phase_s": 1.5,
    }
    view = operation_view(
        from_json(
            OperationRow, {**document, "deadline_s": 30.0, "elapsed_s": 9.0, "text": "11 of 18 GiB"}
        )
    )
    states = [step.state for step in view.steps]
    assert states == sorted(states, key=["done", "now", "next"].index)
    [now] = [step for step in view.steps if step.state == "now"]
    assert now.phase == phase
    assert now.text == "11 of 18 GiB · 1.5 s of at most 30.0 s"


def test_a_switch_shows_all_its_steps_from_the_beginning() -> None:
    """Each phase but that of a command, which a switch has none of."""
    for kind in (Kind.SWITCH, Kind.RESTART):
        view = operation_view(
            from_json(OperationRow, {"id": 3, "kind": kind.value, "phase": Phase.PREFLIGHT.value})
        )
        assert [step.phase for step in view.steps] == [p.value for p in Phase if p is not Phase.RUN]


@pytest.mark.parametrize(
    ("progress", "usual_s", "text", "percent"),
    [
        (0.62, 48.0, "62 % of the usual 48.0 s · 30.0 s", 62),
        (0.99, 12.0, "longer than the usual 12.0 s · 30.0 s", 99),
        (None, None, "30.0 s", None),
        (None, 0.3, "30.0 s", None),
    ],
)
def test_the_load_has_a_figure(
    progress: float | None, usual_s: float | None, text: str, percent: int | None
) -> None:
    """By how long it took before; one that takes longer than usual is told as such."""
    view = operation_view(
        from_json(
            OperationRow,
            {
                "kind": "switch",
                "phase": "load",
                "phase_s": 30.0,
                "progress": progress,
                "usual_s": usual_s,
            },
        )
    )
    [now] = [step for step in view.steps if step.state == "now"]
    assert (now.text, now.percent) == (text, percent)


def test_requests_in_flight_come_first() -> None:
    """Profiles with requests in flight or held are told before idle ones."""
    status, _ = status_documents.observe(STATES["serving"])
    rows = [
        {"name": "idle", "requests": 9},
        {
            "name": "busy",
            "requests": 2,
            "in_flight": 1,
            "queued": 3,
            "ttft_ms": {"p50": 410.0, "p99": 1.0},
        },
        {"name": "unused", "requests": 0},
    ]
    cards = traffic_cards(as_status({**status, "gateway": {"profiles": rows}}))
    assert [card.name for card in cards] == ["busy", "idle"]
    assert (cards[0].in_flight, cards[0].held, cards[0].first_token) == (1, 3, "0.41 s")


def history(*rates: float, step_s: float = 3600.0, level: float | None = 41.0) -> SpeedHistory:
    first = NOW - step_s * len(rates)
    rows = [
        RateSummary(first + step_s * n, 3, rate * 0.99, rate, rate * 1.01)
        for n, rate in enumerate(rates)
    ]
    decode = SeriesBaseline(series=Series.DECODE, phase="watching", baseline=level, band=1.2)
    baseline = None if level is None else BaselineReport(profile="aeon", series=(decode,))
    return SpeedHistory("aeon", NOW - WEEK_S, {"decode": rows}, baseline, [])


def test_a_chart_has_a_line_from_rate_to_rate() -> None:
    """Places are per cent of the plot, from the left and from above; the band lies around the baseline."""
    chart = rate_chart(history(41.0, 41.0, 27.0), "decode", [], now=NOW)
    assert chart is not None
    assert len(chart.lines) == 2
    assert chart.lines[0].y1 == chart.lines[0].y2 < chart.lines[1].y2
    assert chart.band is not None
    assert chart.level is not None
    assert chart.band.top < chart.level < chart.band.top + chart.band.height
    assert "27.0 lately" in chart.summary
    assert len(chart.days) in {6, 7, 8}


def test_a_chart_is_interrupted_where_nothing_was_measured() -> None:
    """No line is drawn over a night without a probe; a lone rate is a short one."""
    chart = rate_chart(history(41.0, 41.0, step_s=8 * 3600.0), "decode", [], now=NOW)
    assert chart is not None
    assert [line.x2 - line.x1 < 1 for line in chart.lines] == [True, True]


def test_markers_are_numbered_in_the_order_of_time() -> None:
    """The newest are kept; one before the chart's beginning is left out."""
    marks = [ChartMark(unix_s=NOW - n * 3600.0, kind="switch", text=str(n)) for n in range(1, 40)]
    old = ChartMark(unix_s=NOW - 2 * WEEK_S, kind="change", text="old")
    chart = rate_chart(history(41.0, 40.0), "decode", [old, *marks], now=NOW)
    assert chart is not None
    assert [m.number for m in chart.markers] == list(range(1, MOST_MARKERS + 1))
    assert [m.x for m in chart.markers] == sorted(m.x for m in chart.markers)
    assert chart.markers[-1].text == "1"


def test_charts_of_odd_rates() -> None:
    """None at all, zeros, one that is not a number, a million, and no baseline give a chart or none."""
    assert rate_chart(history(), "decode", [], now=NOW) is None
    assert rate_chart(history(math.inf, math.nan), "decode", [], now=NOW) is None
    for rates in ((0.0,), (0.0, 0.0), (1e12, 1e-12), tuple([41.0] * 5000)):
        for level in (None, 0.0, math.inf):
            chart = rate_chart(history(*rates, level=level, step_s=60.0), "decode", [], now=NOW)
            assert chart is not None
            places = [v for line in chart.lines for v in (line.x1, line.y1, line.x2, line.y2)]
            assert all(0 <= place <= 100 for place in places)
            assert len(chart.lines) <= MOST_POINTS + 1
