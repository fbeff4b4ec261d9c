from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from sapbert.service.middleware.metrics import Metrics
from tests.service.conftest import Bench

LINE = re.compile(r'^[a-z_]+(\{([a-z]+="[^"\n]*",?)+\})? [0-9.e+-]+$')


def values(metrics: Metrics, *, in_flight: int = 0, waiting: int = 0) -> dict[str, float]:
    """Parse the text format."""
    text = metrics.render(in_flight=in_flight, waiting=waiting, linkers={"mesh": "f00d"})
    assert text.endswith("\n")
    result = {}
    for line in text.splitlines():
        if not line.startswith("#"):
            assert LINE.match(line), line
            name, value = line.rsplit(" ", 1)
            assert name not in result
            result[name] = float(value)
    return result


def test_requests_are_counted_by_route_and_status() -> None:
    metrics = Metrics(["/v1/link"])
    metrics.count_mentions(123_456_789)
    for route, status in (
        ("/v1/link", 200),
        ("/v1/link", 200),
        ("/v1/link", 503),
        ("/etc", 404),
        ("/x", 499),
    ):
        metrics.count_request(route, status, 0.02)

    result = values(metrics, in_flight=3, waiting=7)

    assert result["sapbert_mentions_total"] == 123_456_789
    assert result['sapbert_requests_total{route="/v1/link",status="200"}'] == 2
    assert result['sapbert_requests_total{route="/v1/link",status="503"}'] == 1
    assert result['sapbert_requests_total{route="other",status="404"}'] == 1
    assert result['sapbert_requests_total{route="other",status="other"}'] == 1
    assert (result["sapbert_requests_in_flight"], result["sapbert_mentions_waiting"]) == (3, 7)
    assert result['sapbert_linker_info{linker="mesh",fingerprint="f00d"}'] == 1


@given(st.lists(st.tuples(st.sampled_from([200, 408, 418, 503]), st.floats(0, 100)), min_size=1))
def test_every_request_has_one_status_and_one_time(requests: list[tuple[int, float]]) -> None:
    metrics = Metrics(["/a"])
    for status, seconds in requests:
        metrics.count_request("/a", status, seconds)
    result = values(metrics)
    counted = sum(value for name, value in result.items() if name.startswith("sapbert_requests_total"))
    assert counted == result['sapbert_request_seconds_count{route="/a"}'] == len(requests)


@given(st.lists(st.floats(min_value=0, max_value=100), max_size=50))
def test_a_histogram_bucket_counts_values_up_to_its_bound(seconds: list[float]) -> None:
    metrics = Metrics(["/a"])
    for value in seconds:
        metrics.count_request("/a", 200, value)

    result = values(metrics)

    buckets = {name: count for name, count in result.items() if "request_seconds_bucket" in name}
    assert bool(buckets) == bool(seconds)
    for name, count in buckets.items():
        bound = float(name.partition('le="')[2].partition('"')[0].replace("+Inf", "inf"))
        assert count == sum(value <= bound for value in seconds)
    if seconds:
        np.testing.assert_allclose(result['sapbert_request_seconds_sum{route="/a"}'], sum(seconds), rtol=1e-6)


def test_any_worker_reports_the_metrics_of_all(tmp_path: Path) -> None:
    metrics = Metrics(["/a"], tmp_path)
    metrics.count_mentions(2)
    other = (
        "import sys; from pathlib import Path; from sapbert.service.middleware.metrics import Metrics\n"
        "other = Metrics(['/a'], Path(sys.argv[1]))\n"
        "other.count_mentions(5); other.count_request('/a', 200, 1.0)\n"
        "other.render(in_flight=9, waiting=9, linkers={})\n"
    )
    subprocess.run([sys.executable, "-c", other, str(tmp_path)], check=True)
    (tmp_path / "999999999").touch()

    result = values(metrics, in_flight=1)

    assert result["sapbert_mentions_total"] == 7
    assert result['sapbert_requests_total{route="/a",status="200"}'] == 1
    # Counters of an ended worker are kept, its gauges are not.
    assert result["sapbert_requests_in_flight"] == 1
    assert (tmp_path / f"{os.getpid()}").is_file()


def test_the_service_counts_requests_and_mentions(bench: Bench) -> None:
    bench.link("metrically unheard of", "cold")
    bench.link("metrically unheard of", "cold")

    answer = bench.client.get("/metrics")

    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert 'sapbert_requests_total{route="/v1/link",status="200"} 2' in answer.text
    assert "sapbert_mentions_total 4" in answer.text
    assert "sapbert_mentions_remembered_total 2" in answer.text
    assert "sapbert_requests_in_flight 1" in answer.text
    assert 'sapbert_linker_info{linker="drug",fingerprint="f00d"} 1' in answer.text
