"""Dashboard, alert rules and reference of the metrics: they name what is on the page, and all of it is told."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from appliance.web.metrics.table import METRICS, PAGE, MetricKind, table, with_table

MONITORING = Path(__file__).parents[4] / "docs" / "monitoring"
RULES: Any = yaml.safe_load((MONITORING / "prometheus" / "rules.yml").read_text("utf-8"))
TESTS: Any = (MONITORING / "prometheus" / "rules_test.yml").read_text("utf-8")
BOARD: Any = json.loads((MONITORING / "grafana" / "appliance.json").read_text("utf-8"))
ALERTS = {rule["alert"]: rule for group in RULES["groups"] for rule in group["rules"]}
NAMES = {
    name + ending
    for name, metric in METRICS.items()
    for ending in (("_bucket", "_sum", "_count") if metric.kind is MetricKind.HISTOGRAM else ("",))
}
LABELS = {
    "instance",
    "job",
    "le",
    *(label for metric in METRICS.values() for label in metric.labels),
}


def queries_of_board() -> Iterator[str]:
    for panel in BOARD["panels"]:
        for target in panel.get("targets", ()):
            yield target["expr"]
    for annotation in BOARD["annotations"]["list"]:
        yield annotation["expr"]
    for variable in BOARD["templating"]["list"]:
        if variable["type"] == "query":
            yield variable["definition"]


def metrics_in(query: str) -> set[str]:
    return set(re.findall(r"\bappliance_[a-z0-9_]+", query))


@pytest.mark.parametrize("query", [*queries_of_board(), *(r["expr"] for r in ALERTS.values())])
def test_a_query_names_what_there_is(query: str) -> None:
    """A metric or a label that is renamed would leave a panel empty, or a rule mute."""
    assert metrics_in(query) - NAMES == set()
    assert metrics_in(query) or query.startswith("up{")
    matched = set(re.findall(r'([a-z_]+)\s*=~?"', query))
    grouped = {
        label.strip()
        for group in re.findall(r"\b(?:by|on) \(([^)]*)\)", query)
        for label in group.split(",")
    }
    assert (matched | grouped) - LABELS == set()


def test_the_series_of_the_rules_tests_exist() -> None:
    """A test of a rule with a series that no box has proves nothing."""
    assert metrics_in(TESTS) - NAMES == set()


@pytest.mark.parametrize("alert", ALERTS)
def test_a_rule_says_what_to_do_and_is_tested(alert: str) -> None:
    """Each rule has a severity, a summary with its box, a description, and a unit test."""
    rule = ALERTS[alert]
    assert rule["labels"]["severity"] in {"critical", "warning"}
    assert "$labels.instance" in rule["annotations"]["summary"]
    assert rule["annotations"]["description"]
    assert f'alertname="{alert}"' in TESTS or f"alertname: {alert}\n" in TESTS


def test_panels_do_not_overlap() -> None:
    """Each panel has a place of its own, a number of its own and a description."""
    cells = [
        (x, y)
        for panel in BOARD["panels"]
        for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
    ]
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) < 24
    numbers = [panel["id"] for panel in BOARD["panels"]]
    assert len(numbers) == len(set(numbers))
    assert all(panel["description"] for panel in BOARD["panels"] if panel["type"] != "row")


def test_the_reference_is_current() -> None:
    """The page has every metric of this release."""
    page = PAGE.read_text("utf-8")
    assert with_table(page) == page, "run: python -m appliance.web.metrics.table"
    assert all(f"`{name}`" in table() for name in METRICS)


def test_a_page_without_a_place_for_the_table_is_refused() -> None:
    """A page's text that was written by hand is not lost."""
    with pytest.raises(ValueError, match="no place for the table"):
        with_table("# Metrics\n")
