"""Metrics in the text format of Prometheus.

All values are in one array whose layout is fixed at start. With several workers, each maps a file of its own
in a shared folder, and the worker that is scraped adds them up. So a scrape always reports the whole
service. Decision 37 explains why prometheus-client is not used.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

OTHER = "other"
"""Route label of requests to unknown paths."""
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_STATUSES = (200, 400, 401, 404, 405, 408, 413, 415, 422, 429, 500, 503)
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_BATCHES = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)
_COUNTERS = {
    "sapbert_mentions_total": "Mentions requested.",
    "sapbert_mentions_remembered_total": "Mentions answered from the cache.",
}
_GAUGES = {
    "sapbert_requests_in_flight": "Requests in progress.",
    "sapbert_mentions_waiting": "Mentions waiting for the encoder.",
}


class Metrics:
    """Counters, gauges and histograms of one worker; with a `folder`, reported for all workers together."""

    def __init__(self, routes: Sequence[str], folder: Path | None = None) -> None:
        self._routes = [*routes, OTHER]
        self._folder = folder
        requests = [f"{route} status {status}" for route in self._routes for status in (*_STATUSES, 0)]
        seconds = [f"{route} {cell}" for route in self._routes for cell in _histogram_cells(_SECONDS)]
        batches = [f"batch {cell}" for cell in _histogram_cells(_BATCHES)]
        names = [*requests, *seconds, *batches, *_COUNTERS, *_GAUGES]
        self._positions = {name: number for number, name in enumerate(names)}
        self._cells: NDArray[np.float64] = np.zeros(len(names))
        if folder is not None:
            path = folder / f"{os.getpid()}"
            self._cells = np.memmap(path, np.float64, "w+", shape=(len(names),))

    def has_route(self, route: str) -> bool:
        """Whether a route has its own label."""
        return route in self._routes

    def count_request(self, route: str, status: int, seconds: float) -> None:
        """Count an answered request."""
        label = route if self.has_route(route) else OTHER
        self._add(f"{label} status {status if status in _STATUSES else 0}", 1)
        self._observe(label, _SECONDS, seconds)

    def count_batch(self, mentions: int) -> None:
        """Count a batch of the encoder."""
        self._observe("batch", _BATCHES, mentions)

    def count_mentions(self, count: int, *, cached: bool = False) -> None:
        """Count requested mentions, or those that were answered from the cache."""
        self._add("sapbert_mentions_remembered_total" if cached else "sapbert_mentions_total", count)

    def render(self, *, in_flight: int, waiting: int, linkers: Mapping[str, str]) -> str:
        """Return all metrics as text; `linkers` maps names to fingerprints."""
        for gauge, value in zip(_GAUGES, (in_flight, waiting), strict=True):
            self._cells[self._positions[gauge]] = value
        return "\n".join(self._lines(self._sum(), linkers)) + "\n"

    def _lines(self, cells: NDArray[np.float64], linkers: Mapping[str, str]) -> Iterator[str]:
        yield from _head("sapbert_requests_total", "counter", "Requests answered.")
        for route in self._routes:
            for status in (*_STATUSES, 0):
                value = cells[self._positions[f"{route} status {status}"]]
                if value:
                    labels = f'route="{route}",status="{status or OTHER}"'
                    yield f"sapbert_requests_total{{{labels}}} {value:.15g}"
        yield from _head(
            "sapbert_request_seconds", "histogram", "Seconds per request, until the last byte is sent."
        )
        for route in self._routes:
            yield from self._histogram(cells, route, "sapbert_request_seconds", f'route="{route}",', _SECONDS)
        yield from _head("sapbert_batch_mentions", "histogram", "Mentions per batch of the encoder.")
        yield from self._histogram(cells, "batch", "sapbert_batch_mentions", "", _BATCHES)
        for kind, metrics in (("counter", _COUNTERS), ("gauge", _GAUGES)):
            for name, description in metrics.items():
                yield from _head(name, kind, description)
                yield f"{name} {cells[self._positions[name]]:.15g}"
        yield from _head("sapbert_linker_info", "gauge", "Fingerprints of the indexes.")
        for name, fingerprint in linkers.items():
            yield f'sapbert_linker_info{{linker="{name}",fingerprint="{fingerprint}"}} 1'

    def _histogram(
        self, cells: NDArray[np.float64], cell: str, name: str, labels: str, bounds: Sequence[float]
    ) -> Iterator[str]:
        counts = [cells[self._positions[f"{cell} {number}"]] for number in range(len(bounds) + 1)]
        if not sum(counts):
            return
        total = 0.0
        for bound, count in zip((*map(str, bounds), "+Inf"), counts, strict=True):
            total += count
            yield f'{name}_bucket{{{labels}le="{bound}"}} {total:.15g}'
        inner = f"{{{labels.rstrip(',')}}}" if labels else ""
        yield f"{name}_sum{inner} {cells[self._positions[f'{cell} sum']]:.15g}"
        yield f"{name}_count{inner} {total:.15g}"

    def _observe(self, cell: str, bounds: Sequence[float], value: float) -> None:
        self._add(f"{cell} {bisect_left(bounds, value)}", 1)
        self._add(f"{cell} sum", value)

    def _add(self, name: str, value: float) -> None:
        self._cells[self._positions[name]] += value

    def _sum(self) -> NDArray[np.float64]:
        """Add up the values of all workers; ended workers keep their counts but not their gauges."""
        if self._folder is None:
            return self._cells
        total = np.zeros_like(self._cells)
        gauges = [self._positions[name] for name in _GAUGES]
        for path in self._folder.iterdir():
            cells = np.fromfile(path, np.float64)
            if len(cells) != len(total):
                continue  # the worker is just starting
            if not _is_running(int(path.name)):
                cells[gauges] = 0
            total += cells
        return total


def _histogram_cells(bounds: Sequence[float]) -> list[str]:
    return [*map(str, range(len(bounds) + 1)), "sum"]


def _head(name: str, kind: str, description: str) -> tuple[str, str]:
    return f"# HELP {name} {description}", f"# TYPE {name} {kind}"


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except OSError:
        return False
    return True
