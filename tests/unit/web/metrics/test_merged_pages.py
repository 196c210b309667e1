"""Engines' own pages of metrics, merged."""

import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from appliance.web.box_documents import EnginePages
from appliance.web.metrics.merged_pages import MOST_LINE, merge
from appliance.web.metrics.metrics_routes import render_engines
from tests.fakes.metric_documents import engine_pages
from tests.fakes.vllm_page import BOARD, RECORDED, page_facts, vllm_page

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
