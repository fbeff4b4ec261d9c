"""A linker in memory: an encoder with many ties, and an index that compares all rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from sapbert.index.name_table import NameTable
from sapbert.index.name_table_writer import write_name_table
from sapbert.linking.linker import Linker
from sapbert.linking.search import DenseSearch
from tests.index.conftest import Facts, NgramEncoder, Row, write

ROWS: list[Row] = [
    ("mesh:D1", "Heart attack", "MSH"),
    ("mesh:D1", "Myocardial infarction", "NCI"),
    ("mesh:D1", "Cardiac infarction", "MSH"),
    ("mesh:D2", "Cold", "MSH"),
    ("mesh:D2", "Common cold", "MSH"),
    ("hp:1", "cold", "HPO"),
    ("hp:1", "Low temperature", "HPO"),
    ("hp:2", "Chest pain", "HPO"),
]
FACTS: Facts = {
    "types": [("mesh:D1", "T047"), ("mesh:D2", "T047"), ("hp:1", "T033"), ("hp:2", "T184")],
    "aliases": [("mesh:D1", "mesh:D9")],
}


class LetterEncoder:
    """Encodes the number of letters `a`, so that most names have equal scores."""

    dimension = 2
    fingerprint = "letters"

    def encode(self, names: Sequence[str]) -> NDArray[np.float32]:
        """Return one unit vector per name."""
        angles = np.array([name.count("a") for name in names], np.float64)
        return np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)


@dataclass
class EveryRow:
    """An index that compares with every row."""

    vectors: NDArray[np.float32]
    depths: list[int]
    """k of each search."""

    def __len__(self) -> int:
        return len(self.vectors)

    @property
    def dimension(self) -> int:
        """Length of one vector."""
        return int(self.vectors.shape[1])

    def search(
        self, vectors: NDArray[np.float32], k: int, *, allowed: NDArray[np.bool_] | None = None
    ) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Return the nearest rows."""
        self.depths.append(k)
        scores = np.full((len(vectors), k), -np.inf, np.float32)
        rows = np.full((len(vectors), k), -1, np.int64)
        candidates = np.arange(len(self)) if allowed is None else np.flatnonzero(allowed)
        for number, vector in enumerate(vectors):
            found = self.vectors[candidates] @ vector
            order = np.lexsort((candidates, -found))[:k]
            scores[number, : len(order)], rows[number, : len(order)] = found[order], candidates[order]
        return scores, rows


@dataclass
class Bench:
    """A linker and its parts."""

    linker: Linker
    name_table: NameTable
    encoder: NgramEncoder | LetterEncoder
    index: EveryRow


def bench_of(
    folder: Path, rows: Sequence[Row], facts: Facts | None, encoder: NgramEncoder | LetterEncoder
) -> Bench:
    """Create a linker for a vocabulary written to `folder`."""
    (folder / "entries").mkdir(parents=True)
    name_table = write_name_table(write(folder / "vocabulary", rows, facts), folder / "entries")
    index = EveryRow(encoder.encode(name_table.folded.span(0, len(name_table))), [])
    linker = Linker(encoder, DenseSearch(index), name_table, fingerprint="f00d")
    return Bench(linker, name_table, encoder, index)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    made = bench_of(tmp_path / "bench", ROWS, FACTS, NgramEncoder(256))
    assert isinstance(made.encoder, NgramEncoder)
    made.encoder.encoded.clear()
    return made


@pytest.fixture
def linker(bench: Bench) -> Linker:
    return bench.linker
