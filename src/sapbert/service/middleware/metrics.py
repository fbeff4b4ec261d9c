"""Figures for Prometheus, in its text format.

Every figure is a cell of one array whose layout is known from the start. With several workers each maps a
file of its own in a folder that they share, and whoever is asked adds them all up; so a scrape sees the
whole service whichever worker answers. The usual client library would do the same with more files and one
more dependency.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

OTHER = "other"
"""The route of what has none."""
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_STATUSES = (200, 400, 401, 404, 405, 408, 413, 415, 422, 429, 500, 503)
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_BATCHES = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)
_COUNTERS = {
    "sapbert_mentions_total": "Mentions asked for.",
    "sapbert_mentions_remembered_total": "Mentions answered from memory.",
}
_GAUGES = {
    "sapbert_requests_in_flight": "Requests being worked on.",
    "sapbert_mentions_waiting": "Mentions waiting for the encoder.",
}


class Metrics:
    """Counts what happens."""

    def __init__(self, routes: Sequence[str], folder: Path | None = None) -> None:
        self._routes = [*routes, OTHER]
        self._folder = folder
        requests = [f"{route} answered {status}" for route in self._routes for status in (*_STATUSES, 0)]
        seconds = [f"{route} {cell}" for route in self._routes for cell in _histogram_cells(_SECONDS)]
        batches = [f"batch {cell}" for cell in _histogram_cells(_BATCHES)]
        names = [*requests, *seconds, *batches, *_COUNTERS, *_GAUGES]
        self._places = {name: number for number, name in enumerate(names)}
        self._cells: NDArray[np.float64] = np.zeros(len(names))
        if folder is not None:
            path = folder / f"{os.getpid()}"
            self._cells = np.memmap(path, np.float64, "w+", shape=(len(names),))

    def knows(self, route: str) -> bool:
        """Whether requests of this route are counted apart."""
        return route in self._routes

    def request(self, route: str, status: int, seconds: float) -> None:
        """Count a request that was answered."""
        known = route if self.knows(route) else OTHER
        self._add(f"{known} answered {status if status in _STATUSES else 0}", 1)
        self._observe(known, _SECONDS, seconds)

    def batch(self, mentions: int) -> None:
        """Count a batch of the encoder."""
        self._observe("batch", _BATCHES, mentions)

    def mentions(self, count: int, *, remembered: bool = False) -> None:
        """Count mentions asked for, or those of them that needed no work."""
        self._add("sapbert_mentions_remembered_total" if remembered else "sapbert_mentions_total", count)

    def text(self, *, in_flight: int, waiting: int, linkers: Mapping[str, str]) -> str:
        """Return all figures; `linkers` are fingerprints by name."""
        for gauge, value in zip(_GAUGES, (in_flight, waiting), strict=True):
            self._cells[self._places[gauge]] = value
        return "\n".join(self._lines(self._sum(), linkers)) + "\n"

    def _lines(self, cells: NDArray[np.float64], linkers: Mapping[str, str]) -> Iterator[str]:
        yield from _head("sapbert_requests_total", "counter", "Requests answered.")
        for route in self._routes:
            for status in (*_STATUSES, 0):
                value = cells[self._places[f"{route} answered {status}"]]
                if value:
                    labels = f'route="{route}",status="{status or OTHER}"'
                    yield f"sapbert_requests_total{{{labels}}} {value:.15g}"
        yield from _head("sapbert_request_seconds", "histogram", "From the first byte to the last.")
        for route in self._routes:
            yield from self._histogram(cells, route, "sapbert_request_seconds", f'route="{route}",', _SECONDS)
        yield from _head("sapbert_batch_mentions", "histogram", "Mentions that the encoder took at once.")
        yield from self._histogram(cells, "batch", "sapbert_batch_mentions", "", _BATCHES)
        for kind, figures in (("counter", _COUNTERS), ("gauge", _GAUGES)):
            for name, about in figures.items():
                yield from _head(name, kind, about)
                yield f"{name} {cells[self._places[name]]:.15g}"
        yield from _head("sapbert_linker_info", "gauge", "The indexes that are served.")
        for name, fingerprint in linkers.items():
            yield f'sapbert_linker_info{{linker="{name}",fingerprint="{fingerprint}"}} 1'

    def _histogram(
        self, cells: NDArray[np.float64], cell: str, name: str, labels: str, bounds: Sequence[float]
    ) -> Iterator[str]:
        counts = [cells[self._places[f"{cell} {number}"]] for number in range(len(bounds) + 1)]
        if not sum(counts):
            return
        total = 0.0
        for bound, count in zip((*map(str, bounds), "+Inf"), counts, strict=True):
            total += count
            yield f'{name}_bucket{{{labels}le="{bound}"}} {total:.15g}'
        inner = f"{{{labels.rstrip(',')}}}" if labels else ""
        yield f"{name}_sum{inner} {cells[self._places[f'{cell} sum']]:.15g}"
        yield f"{name}_count{inner} {total:.15g}"

    def _observe(self, cell: str, bounds: Sequence[float], value: float) -> None:
        self._add(f"{cell} {bisect_left(bounds, value)}", 1)
        self._add(f"{cell} sum", value)

    def _add(self, name: str, value: float) -> None:
        self._cells[self._places[name]] += value

    def _sum(self) -> NDArray[np.float64]:
        """Add up the figures of all workers; of those that are gone, what they had counted."""
        if self._folder is None:
            return self._cells
        total = np.zeros_like(self._cells)
        gauges = [self._places[name] for name in _GAUGES]
        for path in self._folder.iterdir():
            own = np.fromfile(path, np.float64)
            if len(own) != len(total):
                continue  # a worker that has just begun
            if not _lives(int(path.name)):
                own[gauges] = 0
            total += own
        return total


def _histogram_cells(bounds: Sequence[float]) -> list[str]:
    return [*map(str, range(len(bounds) + 1)), "sum"]


def _head(name: str, kind: str, about: str) -> tuple[str, str]:
    return f"# HELP {name} {about}", f"# TYPE {name} {kind}"


def _lives(process: int) -> bool:
    try:
        os.kill(process, 0)
    except OSError:
        return False
    return True
