"""Check of the metrics with Debian's own Prometheus: ``make check-metrics`` (root).

promtool   checks and tests the alert rules, and checks the page of a booted box and one of 200 profiles
server     a real Prometheus in the box scrapes both pages each two seconds: every query of our dashboard is
           understood, and those that a box without GPUs and probes can answer have data; every metric of
           vLLM's own board has data for the model that its engine names
fault      a switch to a model that dies at its start; the rule ApplianceSwitchFailed, as it is shipped, fires;
           the gateway is stopped; ApplianceGatewayDown, whose patience of two minutes is made 4 s, fires

The package is unpacked beside the boxes, not installed.
"""

import json
import re
import subprocess
import sys
import time
import urllib.parse
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from appliance.web.metrics.pages import render_box
from tests.bench.debian import unpacked
from tests.bench.machine import prepared, report, say
from tests.fakes.metric_documents import busy_box, counters_document
from tests.fakes.vllm_page import BOARD as VLLM_BOARD
from tests.fakes.vllm_page import vllm_page
from tests.programs import ROOT
from tests.system.fleet import Fleet
from tests.system.rig import Box
from tests.system.rig.appliance import install

MONITORING: Final = ROOT / "docs" / "monitoring"
RULES: Final = MONITORING / "prometheus" / "rules.yml"
RULES_TEST: Final = MONITORING / "prometheus" / "rules_test.yml"
BOARD: Final = MONITORING / "grafana" / "appliance.json"
MODEL: Final = "/models/Meta-Llama-3-8B"
WEB: Final = "http://127.0.0.1:8011"
PROMETHEUS: Final = "http://127.0.0.1:9090"
PROGRAMS: Final = "/opt/prometheus"
NEEDS_MORE: Final = (
    *(
        "appliance_gpu_",
        "appliance_probe_",
        "appliance_quality_",
        "appliance_kv_cache_",
        "heartbeat",
    ),
    *("appliance_num_requests_", "prefix_cache", "notifications", "errors", "abandoned"),
)
"""Parts of queries that need a GPU, a probe, a target, or traffic that this box does not have."""
CONFIG: Final = """
global: {scrape_interval: 2s, scrape_timeout: 2s, evaluation_interval: 2s}
rule_files: [/etc/prometheus-check/rules.yml]
scrape_configs:
  - job_name: appliance
    static_configs: [{targets: ['127.0.0.1:8011']}]
  - job_name: appliance-engines
    metrics_path: /metrics/engine
    static_configs: [{targets: ['127.0.0.1:8011']}]
"""


def main() -> None:
    """Print the figures; end with status 1 where a check fails."""
    programs = unpacked("prometheus", "usr/bin/promtool").parent
    promtool = programs / "promtool"
    run(promtool, "check", "rules", RULES)
    run(promtool, "test", "rules", RULES_TEST)
    say("promtool: the rules are well and do what their tests say")
    names = [f"profile-{number:03}" for number in range(200)]
    large = render_box(busy_box(names), counters_document(names), None)[1].decode()
    idle = render_box(busy_box(names), counters_document(()), None)[1].decode()
    run(promtool, "check", "metrics", stdin=large)
    series = {"series_200_busy": series_in(large), "series_200_idle": series_in(idle)}
    say(f"200 profiles: {series}, {len(large)} bytes")
    with prepared(install) as image, Box(image, read_only={PROGRAMS: programs}) as box:
        figures = check_box(Fleet(box), promtool)
    report({**series, "page_200_bytes": len(large), **figures})


def check_box(fleet: Fleet, promtool: Path) -> dict[str, float]:
    """Check the pages of a booted box; returns the figures."""
    box = fleet.box
    box.write("/etc/vllm-page", vllm_page(MODEL))
    box.run("chmod 644 /etc/vllm-page")
    fleet.profile("a", 9001, "--metrics", "/etc/vllm-page")
    fleet.profile("broken", 9002, "--die", "start")
    fleet.apply()
    fleet.switch("a")
    ask(box, times=3)
    page = box.run("curl", "-sSf", "-m", "20", f"{WEB}/metrics").stdout
    run(promtool, "check", "metrics", stdin=page)
    say(f"promtool: the page of a booted box is well: {series_in(page)} series")
    started_s = scraped(box)
    while_used(box, lambda: value(box, "count(up == 1)") == 2)
    vllm = [name for names in VLLM_BOARD.values() for name in names]
    missing = [
        n
        for n in vllm
        if not value(box, f'count({{__name__="{n}", model_name="{MODEL}", profile="a"}})')
    ]
    expect(not missing, f"queries of vLLM's board without data: {missing}")
    say(f"vLLM's board: {len(vllm)} metrics, all with data")
    queries, silent = our_queries(box)
    expect(not silent, f"queries of our board without data: {silent}")
    say(f"our board: {queries} queries are understood, all have data that can have it here")
    began_s = time.monotonic()
    expect(fleet.cli("switch", "broken").exit == 10, "the switch did not roll back")
    switch_s = fires(box, "ApplianceSwitchFailed", began_s)
    began_s = time.monotonic()
    box.run("systemctl stop appliance-gateway.socket appliance-gateway", check=False)
    gateway_s = fires(box, "ApplianceGatewayDown", began_s)
    took = value(box, 'max_over_time(scrape_duration_seconds{job="appliance"}[10m])')
    return {
        "series_of_box": series_in(page),
        "first_scrape_s": started_s,
        "vllm_queries_with_data": len(vllm),
        "board_queries": queries,
        "switch_failed_fires_s": switch_s,
        "gateway_down_fires_s": gateway_s,
        "longest_scrape_ms": 1000 * (took or 0.0),
    }


def scraped(box: Box) -> float:
    """Start Prometheus in the box; returns the seconds until it has scraped both pages."""
    rules = RULES.read_text(encoding="utf-8").replace("for: 2m", "for: 4s")
    box.write("/etc/prometheus-check/prometheus.yml", CONFIG)
    box.write("/etc/prometheus-check/rules.yml", rules)
    began_s = time.monotonic()
    box.run(
        *("systemd-run", "-q", "--unit=prometheus-check", f"{PROGRAMS}/prometheus"),
        *(
            "--config.file=/etc/prometheus-check/prometheus.yml",
            "--storage.tsdb.path=/run/prometheus-check",
        ),
        "--web.listen-address=127.0.0.1:9090",
    )
    wait(lambda: value(box, "count(up == 1)") == 2, "both pages are scraped")
    return time.monotonic() - began_s


def while_used(box: Box, holds: Callable[[], bool]) -> None:
    """Ask the model some more, so that rates have something to see."""
    for _ in range(4):
        ask(box, times=3)
        time.sleep(2)  # real time: Prometheus scrapes each two seconds
    expect(holds(), "a page is no longer scraped")


def our_queries(box: Box) -> tuple[int, Sequence[str]]:
    """Return the number of queries of our board, and those that have no data though they could."""
    board: Mapping[str, Any] = json.loads(BOARD.read_text(encoding="utf-8"))
    found = [t["expr"] for panel in board["panels"] for t in panel.get("targets", ())]
    silent = []
    for query in found:
        plain = query.replace("$__rate_interval", "20s").replace("$__range", "10m")
        plain = re.sub(r"\$(instance|profile)", ".*", plain)
        has_data = bool(answer(box, plain))  # a query that is not understood raises
        if not has_data and not any(part in plain for part in NEEDS_MORE) and "> 0" not in plain:
            silent.append(plain)
    return len(found), silent


def fires(box: Box, alert: str, began_s: float) -> float:
    """Wait until an alert fires; returns the seconds since it could."""
    selector = f'ALERTS{{alertname="{alert}", alertstate="firing"}}'
    wait(lambda: bool(answer(box, selector)), f"{alert} fires")
    took_s = time.monotonic() - began_s
    say(f"{alert} fires {took_s:.1f} s after its fault")
    return took_s


def ask(box: Box, *, times: int) -> None:
    """Have the model answer as a stream."""
    body = json.dumps(
        {"model": "a", "stream": True, "messages": [{"role": "user", "content": "x"}]}
    )
    for _ in range(times):
        box.run(
            *("curl", "-sSf", "-m", "20", "-H", "Content-Type: application/json", "-d", body),
            "http://127.0.0.1:8010/v1/chat/completions",
        )


def value(box: Box, query: str) -> float | None:
    """Return the only value of a query; None: it has none."""
    found = answer(box, query)
    return float(found[0]["value"][1]) if found else None


def answer(box: Box, query: str) -> Sequence[Mapping[str, Any]]:
    """Return the series that a query finds now; empty also while the server starts."""
    at = f"{PROMETHEUS}/api/v1/query?query={urllib.parse.quote(query)}"
    done = box.run("curl", "-sS", "-m", "10", at, check=False)
    if done.returncode or not done.stdout.startswith("{"):
        return ()
    told: Mapping[str, Any] = json.loads(done.stdout)
    expect(told["status"] == "success", f"{query}: {told.get('error')}")
    found: Sequence[Mapping[str, Any]] = told["data"]["result"]
    return found


def series_in(page: str) -> int:
    """Return the number of series of a page."""
    return sum(not line.startswith("#") for line in page.splitlines())


def wait(holds: Callable[[], bool], what: str, *, timeout_s: float = 60.0) -> None:
    """Wait until something holds."""
    end_s = time.monotonic() + timeout_s
    while not holds():
        expect(time.monotonic() < end_s, f"not within {timeout_s:.0f} s: {what}")
        time.sleep(0.5)  # real time: another program works


def run(program: Path, *arguments: str | Path, stdin: str | None = None) -> None:
    """Run a program of Prometheus's, which must not complain."""
    done = subprocess.run(
        [program, *arguments], input=stdin, capture_output=True, text=True, check=False
    )
    output = done.stdout + done.stderr
    expect(done.returncode == 0, f"{program.name} {' '.join(map(str, arguments))}:\n{output}")


def expect(holds: object, what: str) -> None:
    """End the check where something does not hold."""
    if not holds:
        sys.exit(f"failed: {what}")


def metrics_in(queries: Iterable[str]) -> set[str]:
    """Return the metrics of ours that queries name."""
    return {name for query in queries for name in re.findall(r"\bappliance_[a-z0-9_]+", query)}


if __name__ == "__main__":
    main()
