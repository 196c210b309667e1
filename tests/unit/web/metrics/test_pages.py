"""Routes of the metrics."""

import json
import time
from dataclasses import replace

import pytest
from fastapi import FastAPI
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as parse_openmetrics,
)
from prometheus_client.parser import text_string_to_metric_families

from appliance.model.operations import Outcome
from appliance.model.status import StatusDocument
from appliance.web.box_documents import STALE_S, BoxDocuments, Document, EnginePages
from appliance.web.metrics.pages import MOST_LINE, merge, metrics_router, render_box, render_engines
from appliance.web.metrics.table import METRICS, ON_ENGINE_PAGE, MetricKind
from tests.fakes.fixed_box import FixedBox, browse
from tests.fakes.metric_documents import GIB, NOW_UNIX_S, busy_box, counters_document, engine_pages
from tests.fakes.vllm_page import BOARD, RECORDED, page_facts, vllm_page


def with_metrics(box: FixedBox) -> FastAPI:
    application = FastAPI()
    application.include_router(metrics_router(box))
    return application


async def test_both_pages_are_served_as_a_collector_wants_them() -> None:
    """The box and its engines are two pages, so that each has an interval of its own."""
    box = FixedBox(busy_box(), counters_document(), engine_pages(aeon="x 1\n"))
    async with browse(with_metrics(box)) as web:
        page = await web.get("/metrics")
        assert page.status_code == 200
        assert page.headers["content-type"].startswith("text/plain; version=0.0.4")
        assert 'appliance_requests_total{profile="aeon"} 2.0' in page.text
        strict = await web.get("/metrics", headers={"accept": "application/openmetrics-text"})
        assert strict.headers["content-type"].startswith("application/openmetrics-text")
        assert strict.text.endswith("# EOF\n")
        engines = await web.get("/metrics/engine")
        assert engines.status_code == 200
        assert engines.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
        assert 'x{profile="aeon"} 1' in engines.text
        assert "appliance_requests_total" not in engines.text


async def test_a_box_without_daemons_still_has_pages() -> None:
    """A collector learns that the daemons are away; an error would tell it nothing."""
    async with browse(with_metrics(FixedBox())) as web:
        for path in ("/metrics", "/metrics/engine"):
            page = await web.get(path)
            assert page.status_code == 200
            assert 'appliance_source_up{source="supervisor"} 0.0' in page.text


NAMES_OF_200 = [f"profile-{number:03}" for number in range(200)]
ENDINGS = {MetricKind.HISTOGRAM: ("_bucket", "_count", "_sum")}
Sample = tuple[str, frozenset[tuple[str, str]]]


def page_of(box: BoxDocuments, counters: Document | None) -> str:
    return render_box(box, counters, None)[1].decode()


def samples(page: str) -> dict[Sample, float]:
    """The samples of a page, each of which is there once."""
    found: dict[Sample, float] = {}
    for family in text_string_to_metric_families(page):
        for sample in family.samples:
            key = (sample.name, frozenset(sample.labels.items()))
            assert key not in found
            found[key] = sample.value
    return found


def label_id(value: object) -> str:
    """Return the same id for a sample in every process, where sets differ in their order."""
    return f"{value[0]}{sorted(value[1])}" if isinstance(value, tuple) else str(value)


def one(name: str, /, **labels: str) -> Sample:
    return name, frozenset(labels.items())


BUSY = samples(page_of(busy_box(), counters_document()))


@pytest.mark.parametrize(
    ("sample", "value"),
    [
        (one("appliance_source_up", source="health"), 1),
        (one("appliance_verdict", state="degraded"), 1),
        (one("appliance_verdict", state="serving"), 0),
        (one("appliance_hold"), 0),
        (one("appliance_operation_running"), 1),
        (one("appliance_ram_available_bytes"), 40 * GIB),
        (one("appliance_profile_state", profile="aeon", state="serving"), 1),
        (one("appliance_profile_state", profile="aeon", state="failed"), 0),
        (one("appliance_profile_state", profile="genesis", state="stopped"), 1),
        (one("appliance_profile_mark", profile="aeon", mark="live"), 1),
        (one("appliance_profile_mark", profile="genesis", mark="live"), 0),
        (one("appliance_profile_committed", profile="aeon"), 1),
        (one("appliance_profile_uptime_seconds", profile="aeon"), 120),
        (one("appliance_profile_stalled", profile="aeon"), 1),
        (one("appliance_profile_ram_bytes", profile="aeon"), 2 * GIB),
        (one("appliance_switches_total", result="done"), 1),
        (one("appliance_switches_total", result="rolled-back"), 1),
        (one("appliance_switches_total", result="failed"), 0),
        (one("appliance_operations_total", kind="repair", result="done"), 1),
        (one("appliance_switch_duration_seconds_sum", phase="load"), 20.099),
        (one("appliance_switch_duration_seconds_bucket", phase="load", le="0.1"), 1),
        (one("appliance_switch_duration_seconds_bucket", phase="load", le="30.0"), 2),
        (one("appliance_switch_duration_seconds_count", phase="roll-back load"), 1),
        (one("appliance_gateway_up"), 1),
        (one("appliance_requests_total", profile="aeon"), 2),
        (one("appliance_requests_in_flight", profile="aeon"), 1),
        (one("appliance_requests_held", profile="aeon"), 0),
        (one("appliance_engine_quiet_seconds", profile="aeon"), 3),
        (one("appliance_prompt_tokens_total", profile="aeon"), 50),
        (one("appliance_generation_tokens_total", profile="aeon"), 11),
        (one("appliance_prefix_cache_hits_total", profile="aeon"), 40),
        (one("appliance_time_to_first_token_seconds_bucket", profile="aeon", le="20.0"), 0),
        (one("appliance_time_to_first_token_seconds_bucket", profile="aeon", le="30.0"), 1),
        (one("appliance_time_to_first_token_seconds_bucket", profile="aeon", le="+Inf"), 1),
        (one("appliance_inter_token_latency_seconds_count", profile="aeon"), 2),
        (one("appliance_inter_token_latency_seconds_sum", profile="aeon"), 0.06),
        (one("appliance_e2e_request_latency_seconds_sum", profile="aeon"), 25.26),
        (one("appliance_kv_cache_usage_ratio", profile="aeon"), 0.5),
        (one("appliance_num_requests_waiting", profile="aeon"), 1),
        # Steps a second times tokens a step.
        (one("appliance_probe_decode_tokens_per_second", profile="aeon"), 54),
        (one("appliance_probe_baseline_tokens_per_second", profile="aeon"), 82),
        (one("appliance_probe_band_tokens_per_second", profile="aeon"), 3),
        (one("appliance_probe_prefill_tokens_per_second", profile="aeon"), 27),
        (one("appliance_probe_regressed", profile="aeon", series="decode"), 1),
        (one("appliance_probe_regressed", profile="aeon", series="prefill"), 0),
        (one("appliance_probe_last_success_timestamp_seconds", profile="aeon"), NOW_UNIX_S - 600),
        (one("appliance_quality_pass_ratio", profile="aeon"), 0.875),
        (one("appliance_gpu_info", gpu="0", uuid="GPU-1", name="RTX 3090"), 1),
        (one("appliance_gpu_memory_used_bytes", gpu="0", owner="aeon"), 12 * GIB),
        (one("appliance_gpu_memory_used_bytes", gpu="0", owner="foreign processes"), 8 * GIB),
        (one("appliance_gpu_memory_used_bytes", gpu="0", owner="no process"), GIB),
        (one("appliance_gpu_energy_joules_total", gpu="0"), 123456.5),
        (one("appliance_gpu_sm_clock_hertz", gpu="0"), 1.2e9),
        (one("appliance_gpu_throttled", gpu="0", reason="sw_thermal_slowdown"), 1),
        (one("appliance_alerts_firing", severity="critical"), 1),
        # Two that are told, and three for which the answer had no room.
        (one("appliance_alerts_firing", severity="warning"), 5),
        (one("appliance_alerts_firing", severity="info"), 0),
        (one("appliance_outbox_oldest_seconds"), 90),
        (one("appliance_notifications_total", target="phone", result="sent"), 5),
        (one("appliance_heartbeat_last_success_timestamp_seconds"), NOW_UNIX_S - 15),
    ],
    ids=label_id,
)
def test_a_figure_of_the_box(sample: Sample, value: float) -> None:
    """Each figure is what its document says, in the unit of its name."""
    assert BUSY[sample] == pytest.approx(value)


def test_every_metric_of_the_table_is_on_the_page() -> None:
    """No name of the table is a promise alone, and none on the page is missing in it."""
    found = {name for name, _ in BUSY}
    promised = {
        name + ending
        for name, metric in METRICS.items()
        if name not in ON_ENGINE_PAGE
        for ending in ENDINGS.get(metric.kind, ("",))
    }
    assert found == promised


def test_labels_are_those_of_the_table() -> None:
    """A label is added nowhere in passing."""
    for name, labels in BUSY:
        base = next(
            one
            for one in METRICS
            if name == one
            or name.removesuffix("_bucket") == one
            or name.removesuffix("_sum") == one
            or name.removesuffix("_count") == one
        )
        assert {label for label, _ in labels} - {"le"} == set(METRICS[base].labels)


def test_what_is_not_known_is_absent() -> None:
    """A daemon that does not answer has no figures: not those of before, and no zeros."""
    nothing = samples(page_of(BoxDocuments(unix_s=NOW_UNIX_S), None))
    assert {name for name, _ in nothing} == {"appliance_build_info", "appliance_source_up"}
    assert {nothing[one("appliance_source_up", source=s)] for s in ("supervisor", "health")} == {0}
    stale = replace(busy_box(), status_age_s=STALE_S, speeds_age_s=STALE_S, gpus_age_s=STALE_S)
    assert samples(page_of(stale, None)) == nothing
    away = samples(page_of(BoxDocuments(unix_s=NOW_UNIX_S), {"gateway": None, "operations": {}}))
    assert away.keys() - nothing.keys() == {one("appliance_gateway_up")}
    assert away[one("appliance_gateway_up")] == 0


def test_a_first_failure_can_be_counted() -> None:
    """Results are there from the start with 0, so that a rate sees the first one."""
    counts = counters_document(())
    found = samples(page_of(BoxDocuments(unix_s=0.0), counts))
    results = {
        dict(labels)["result"] for name, labels in found if name == "appliance_switches_total"
    }
    assert results == set(Outcome)


@pytest.mark.parametrize("counters", [{}, {"gateway": {"profiles": {"a": {"histograms": 3}}}}])
def test_a_document_of_another_release_makes_a_page(counters: Document) -> None:
    """Keys that are missing or of another type make their metrics absent."""
    strange = BoxDocuments(
        unix_s=1.0,
        status=StatusDocument(),
        status_age_s=0.0,
        speeds={"alerts": 3},
        speeds_age_s=0.0,
    )
    assert one("appliance_source_up", source="supervisor") in samples(page_of(strange, counters))


def test_a_histogram_that_makes_no_sense_is_absent() -> None:
    """A count for a bound that is not told would be counted under another one."""
    counters = counters_document()
    counters["gateway"]["bounds_s"]["time_to_first_token"].pop()
    counters["gateway"]["profiles"]["aeon"]["histograms"]["inter_token_latency"]["counts"][0] = -1
    found = {name for name, _ in samples(page_of(busy_box(), counters))}
    assert "appliance_e2e_request_latency_seconds_bucket" in found
    assert "appliance_time_to_first_token_seconds_bucket" not in found
    assert "appliance_inter_token_latency_seconds_bucket" not in found


def test_series_are_bounded_with_200_profiles() -> None:
    """Most series are those of traffic: a profile that was never asked has fifteen."""
    idle = samples(page_of(busy_box(NAMES_OF_200), counters_document(())))
    busy = samples(page_of(busy_box(NAMES_OF_200), counters_document(NAMES_OF_200)))
    assert len(idle) < 200 * 25
    assert len(busy) < 200 * 110
    words = {dict(labels).get("profile", NAMES_OF_200[0]) for _, labels in busy}
    assert words == set(NAMES_OF_200)


def test_no_text_of_a_user_is_a_label() -> None:
    """Names of processes and sentences stay out: they have no bound, and may be anything."""
    page = page_of(busy_box(), counters_document())
    assert "Xorg" not in page
    assert "hostile" not in page


def test_a_collector_that_asks_for_openmetrics_has_it() -> None:
    """The same figures in OpenMetrics, by the header that Prometheus sends."""
    accept = "application/openmetrics-text;version=1.0.0;q=0.8,text/plain;version=0.0.4;q=0.5"
    content_type, page = render_box(busy_box(), counters_document(), accept)
    assert content_type.startswith("application/openmetrics-text")
    families = list(parse_openmetrics(page.decode()))  # type: ignore[no-untyped-call]
    assert sum(len(family.samples) for family in families) == len(BUSY)


@given(st.text(max_size=300))
def test_any_accept_header_is_answered(accept: str) -> None:
    """A header that makes no sense is treated as a missing one."""
    content_type, page = render_box(BoxDocuments(unix_s=0.0), None, accept)
    assert content_type
    assert b"appliance_build_info" in page


LLAMA = """\
# HELP llamacpp:requests_processing Number of requests processing.
# TYPE llamacpp:requests_processing gauge
llamacpp:requests_processing 2
"""


def test_the_board_of_vllm_has_data_for_each_query() -> None:
    """Every metric of every panel is there for the model, with the profile beside the engine's labels."""
    page = merge({"aeon": vllm_page("m"), "genesis": LLAMA}).render()
    found = {
        (sample.name, sample.labels.get("model_name"), sample.labels["profile"])
        for family in text_string_to_metric_families(page)
        for sample in family.samples
    }
    asked = {(name, "m", "aeon") for names in BOARD.values() for name in names}
    assert asked - found == set()
    assert ("llamacpp:requests_processing", None, "genesis") in found


def test_the_page_of_a_real_vllm_has_data_for_each_query() -> None:
    """The page that was recorded has every metric of the board for a model, and all of the page that is made here."""
    recorded = json.loads(RECORDED.read_text(encoding="utf-8"))
    for name in (name for names in BOARD.values() for name in names):
        assert "model_name" in recorded[name]
    made = page_facts(vllm_page())
    assert {name: recorded.get(name) for name in made} == made


def test_values_labels_and_types_pass_as_they_are() -> None:
    """Samples of an engine are passed on complete, with one label more."""
    page = vllm_page('a"b\\c\nd')
    before = {
        (sample.name, frozenset(sample.labels.items())): (family.type, sample.value)
        for family in text_string_to_metric_families(page)
        for sample in family.samples
    }
    merged = merge({"aeon": page})
    after = {
        (sample.name, frozenset(sample.labels.items())): (family.type, sample.value)
        for family in text_string_to_metric_families(merged.render())
        for sample in family.samples
    }
    assert len(before) > 150
    assert after == {
        (name, labels | {("profile", "aeon")}): found for (name, labels), found in before.items()
    }
    assert merged.dropped == {"aeon": 0}


def test_lines_of_one_metric_are_together_under_one_help() -> None:
    """The metrics of several engines of one kind are one family, as the format demands."""
    page = merge({"aeon": vllm_page(), "genesis": vllm_page(), "mini": LLAMA}).render()
    lines = page.splitlines()
    helps = [line.split()[2] for line in lines if line.startswith("# HELP")]
    assert len(helps) == len(set(helps))
    families = [line.split()[2] for line in lines if line.startswith("# TYPE")]
    assert len(families) == len(set(families))
    order = [line.partition("{")[0] for line in lines if not line.startswith("#")]
    runs = [a for a, b in zip(order, [*order[1:], ""], strict=True) if a != b]
    assert len([one for one in runs if one == "vllm:prompt_tokens_total"]) == 1


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("x 1", 'x{profile="p"} 1'),
        ("x{} 1 1700000000000", 'x{profile="p"} 1 1700000000000'),
        (' x { a = "b" , } +Inf ', 'x{profile="p",a="b"} +Inf'),
        ('x{a="}",b=" ,profile=\\"1\\""} 1e-9', 'x{profile="p",a="}",b=" ,profile=\\"1\\""} 1e-9'),
        ('x{profile="mine"} NaN', 'x{profile="p",exported_profile="mine"} NaN'),
        ("x\t-1.5\t-3", 'x{profile="p"} -1.5 -3'),
        ("x 1\r", 'x{profile="p"} 1'),
    ],
)
def test_a_line_gets_its_profile(line: str, expected: str) -> None:
    """The profile comes first; a label of the same name is kept under another, as Prometheus does it."""
    assert merge({"p": line}).render() == expected + "\n"


@pytest.mark.parametrize(
    "line",
    [
        "<html>",
        "x",
        "x one",
        'x{a="b} 1',
        "x{a=b} 1",
        'x{a="b"c="d"} 1',
        'x{a="1",a="2"} 1',
        'x{__name__="y"} 1',
        'x{profile="1",exported_profile="2"} 1',
        'x{a="\\q"} 1',
        "1x 1",
        "x 1 2 3",
        "x 1 99999999999999999999",
        '{"a.b"} 1',
        'x{a="' + "b" * MOST_LINE + '"} 1',
    ],
)
def test_a_line_that_would_spoil_the_page_is_dropped(line: str) -> None:
    """A collector refuses a whole page for one bad line; the number of dropped ones is told."""
    merged = merge({"p": f"a 1\n{line}\nb 2\n"})
    assert merged.render() == 'a{profile="p"} 1\nb{profile="p"} 2\n'
    assert merged.dropped == {"p": 1}


def test_a_series_comes_once() -> None:
    """The first of two samples of one series is passed on."""
    merged = merge({"p": 'x{a="1"} 1\nx{a="2"} 2\nx{a="1"} 3\n', "q": 'x{a="1"} 4\n'})
    assert [line[-1] for line in merged.render().splitlines()] == ["1", "2", "4"]
    assert merged.dropped == {"p": 1, "q": 0}


@given(st.text(alphabet=st.sampled_from('x{}=",\\ \n#1.e+-profile_HELPTYPE counter\t\r\x00é')))
def test_any_page_makes_one_that_can_be_read(text: str) -> None:
    """A strict parser reads the merged page, of any text that engines write."""
    page = merge({"p": text, "q": text}).render()
    for family in text_string_to_metric_families(page):
        for sample in family.samples:
            assert sample.labels["profile"] in {"p", "q"}


@pytest.mark.parametrize(
    "unit",
    [
        'x{a="b"} 1\n',
        "x{",
        'a="b",',
        'x{a="\\',
        "# HELP x ",
        " ",
        "1",
        'x{a="b",a="b",a="b"} 1\n# TYPE x counter\n',
    ],
)
def test_time_is_linear_in_the_page(unit: str) -> None:
    """Eight times the text takes no more than about eight times as long, for pages made to be slow."""

    def spent_s(times: int) -> float:
        text = unit * times
        begun_s = time.process_time()
        merge({"p": text})
        return time.process_time() - begun_s

    small, large = (min(spent_s(count) for _ in range(3)) for count in (8_000, 64_000))
    assert large < 0.05 + 24 * small


def test_what_became_of_each_page_is_told() -> None:
    """A page that is absent, cut or not clean is seen in its own metric, beside the others' figures."""
    pages = EnginePages(
        states={"aeon": "complete", "mini": "absent", "genesis": "truncated"},
        texts={"aeon": "x 1\nbad\n", "genesis": "x 2\n"},
    )
    page = render_engines(pages).decode()
    assert 'appliance_engine_page{profile="mini",state="absent"} 1.0' in page
    assert 'appliance_engine_page{profile="genesis",state="truncated"} 1.0' in page
    assert 'appliance_engine_lines_dropped{profile="aeon"} 1.0' in page
    assert 'appliance_engine_lines_dropped{profile="mini"}' not in page
    assert 'x{profile="genesis"} 2' in page
    assert 'appliance_source_up{source="supervisor"} 1.0' in page
    assert render_engines(None).decode().endswith('appliance_source_up{source="supervisor"} 0.0\n')


def test_a_large_page_of_many_engines_takes_little_time() -> None:
    """Eight pages of 300,000 characters take less than a second: a collector waits for ten."""
    text = "".join(vllm_page(f"m{number}") for number in range(14))
    assert len(text) > 300_000
    begun_s = time.process_time()
    page = render_engines(engine_pages(**{f"p{number}": text for number in range(8)}))
    assert time.process_time() - begun_s < 1.5
    assert len(page) > 2_000_000
