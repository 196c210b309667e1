"""Latencies as other tools summarise them."""

import pytest

from appliance.speed.bench.latencies import latencies_ms, percentile
from tests.fakes.bench_rows import bench_row


def test_percentiles_are_interpolated() -> None:
    """Between two values lies the share of their distance, as numpy.percentile has it."""
    values = [1.0, 2.0, 4.0, 8.0]
    assert percentile(values, 50) == 3.0
    assert percentile(values, 95) == pytest.approx(7.4)
    assert percentile(values, 100) == 8.0
    assert percentile([5.0], 99) == 5.0


def test_each_latency_has_its_figures() -> None:
    """TTFT, TPOT and E2EL have one value a request, ITL one a gap."""
    rows = [
        bench_row(tokens=3, arrivals_s=(1.0, 1.5, 2.5)),
        bench_row(tokens=2, arrivals_s=(3.0, 3.5)),
        bench_row(error="503"),
    ]
    found = latencies_ms(rows)
    assert found["mean_ttft_ms"] == 2000.0
    assert found["median_ttft_ms"] == found["p50_ttft_ms"] == 2000.0
    assert found["std_ttft_ms"] == 1000.0
    assert found["mean_e2el_ms"] == 3000.0
    assert found["mean_tpot_ms"] == (750.0 + 500.0) / 2
    assert found["mean_itl_ms"] == pytest.approx((500 + 1000 + 500) / 3)
    assert found["p99_itl_ms"] == pytest.approx(990.0)
    assert len(found) == 24


def test_without_a_request_there_are_names_without_figures() -> None:
    """A level whose requests all failed has every name, so that no reader stumbles."""
    found = latencies_ms([bench_row(error="503")])
    assert len(found) == 24
    assert set(found.values()) == {None}
