"""How well an encoder links: the share of labelled mentions whose nearest name is one of their concept.

Quantisation is judged by this and not by how close its vectors stay, for a small shift may swap neighbours
and a large one need not. It is plain exact search, enough to set two variants of one encoder side by side.

A benchmark is a folder with `dictionary.tsv` (concept_id, name) and `test.tsv` (mention, concept_ids), each
with a header line and perhaps gzipped. A `|` parts the ids of a name, the ids of which any is right (`+`
does too), and the parts of a composite mention, which all must be right.
"""

from __future__ import annotations

import csv
import gzip
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sapbert.encoder.onnx import OnnxEncoder
from sapbert.errors import FormatError
from sapbert.tokens.batching import OnProgress

_K = 5
_MENTIONS_AT_A_TIME = 256


@dataclass(frozen=True, slots=True)
class Benchmark:
    """Labelled mentions and the names they are linked to."""

    names: Sequence[str]
    concepts: Sequence[frozenset[str]]
    """Ids of each name's concept."""
    mentions: Sequence[Sequence[str]]
    """Parts of each mention, one unless it is composite."""
    gold: Sequence[frozenset[str]]
    """Right ids of each mention."""


@dataclass(frozen=True, slots=True)
class Accuracy:
    """Shares of mentions that are linked rightly."""

    first: float
    """By the nearest name."""
    fifth: float
    """By one of the five nearest names."""


def read_benchmark(folder: Path) -> Benchmark:
    """Read a benchmark's dictionary and test mentions."""
    dictionary = list(_rows(folder, "dictionary", ("concept_id", "name")))
    test = list(_rows(folder, "test", ("mention", "concept_ids")))
    return Benchmark(
        names=[name for _, name in dictionary],
        concepts=[_ids(ids) for ids, _ in dictionary],
        mentions=[mention.split("|") for mention, _ in test],
        gold=[_ids(ids) for _, ids in test],
    )


def measure(encoder: OnnxEncoder, benchmark: Benchmark, *, on_progress: OnProgress | None = None) -> Accuracy:
    """Link every mention of a benchmark and return how often that is right."""
    names = encoder.encode(benchmark.names, on_progress=on_progress)  # (names, dim)
    parts = sorted({part for mention in benchmark.mentions for part in mention})
    nearest = dict(zip(parts, _nearest(encoder.encode(parts), names), strict=True))
    # The place, from 0, of a mention's first right name; of a composite one that of its worst part.
    places = np.array(
        [
            max(_place(benchmark, nearest[part], gold) for part in mention)
            for mention, gold in zip(benchmark.mentions, benchmark.gold, strict=True)
        ]
    )
    return Accuracy(float((places < 1).mean()), float((places < _K).mean()))


def _nearest(vectors: NDArray[np.float32], names: NDArray[np.float32]) -> Iterator[NDArray[np.int64]]:
    """Yield the rows of the nearest names of each vector, best first."""
    for start in range(0, len(vectors), _MENTIONS_AT_A_TIME):
        scores = vectors[start : start + _MENTIONS_AT_A_TIME] @ names.T  # (mentions, names)
        chosen = np.argpartition(-scores, min(_K, len(names)) - 1, axis=1)[:, :_K]
        best = np.argsort(-np.take_along_axis(scores, chosen, axis=1), axis=1, kind="stable")
        yield from np.take_along_axis(chosen, best, axis=1)


def _place(benchmark: Benchmark, rows: NDArray[np.int64], gold: frozenset[str]) -> int:
    return next((place for place, row in enumerate(rows) if benchmark.concepts[row] & gold), _K)


def _ids(text: str) -> frozenset[str]:
    return frozenset(part.strip() for part in re.split(r"[|+]", text))


def _rows(folder: Path, stem: str, columns: tuple[str, str]) -> Iterator[tuple[str, str]]:
    plain = folder / f"{stem}.tsv"
    file = plain if plain.is_file() else folder / f"{stem}.tsv.gz"
    if not file.is_file():
        raise FormatError(folder, None, f"no {stem}.tsv or {stem}.tsv.gz", hint="is this a benchmark?")
    opened = gzip.open if file.suffix == ".gz" else open
    with opened(file, "rt", encoding="utf-8", newline="") as stream:
        table = csv.DictReader(stream, delimiter="\t", quoting=csv.QUOTE_NONE)
        missing = [column for column in columns if column not in (table.fieldnames or ())]
        if missing:
            raise FormatError(file, 1, f"no column {missing[0]}", hint=f"it has {table.fieldnames}")
        first, second = columns
        count = 0
        for count, row in enumerate(table, start=1):
            if row[first] is None or row[second] is None:
                raise FormatError(file, count + 1, "a row is shorter than the header")
            yield row[first], row[second]
        if not count:
            raise FormatError(file, None, "no rows below the header")
