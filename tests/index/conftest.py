"""A short way from names to a vocabulary, and an encoder that needs no model."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from numpy.typing import NDArray

from sapbert.vocab.intake import Intake
from sapbert.vocab.vocabulary import Vocabulary
from sapbert.vocab.writer import write_vocabulary

Row = tuple[str, ...]
"""Concept, name and, where given, source, language, rank."""
Facts = Mapping[str, Sequence[tuple[str, str]]]
MakeVocabulary = Callable[..., Vocabulary]
_COLUMNS = ["concept_id", "name", "source", "language", "rank"]


def write(path: Path, rows: Sequence[Row], facts: Facts | None = None) -> Vocabulary:
    """Write a vocabulary of `rows` and, by table, its facts."""
    full = [(*row, *("", "en", "0")[len(row) - 2 :]) for row in rows]
    with write_vocabulary(path, {}, intake := Intake(), overwrite=True) as writer:
        writer.add(pl.DataFrame(full, schema=_COLUMNS, orient="row"))
        for table, pairs in (facts or {}).items():
            column = {"types": "type", "aliases": "alias"}[table]
            writer.add_facts(table, pl.DataFrame(pairs, schema=["concept_id", column], orient="row"))
    assert not intake.skipped
    return Vocabulary.open(path)


@pytest.fixture
def vocabulary_of(tmp_path: Path) -> MakeVocabulary:
    """Write a vocabulary: `vocabulary_of([("x:1", "cold")], {"types": [("x:1", "T047")]})`."""

    def make(rows: Sequence[Row], facts: Facts | None = None) -> Vocabulary:
        return write(tmp_path / f"vocabulary{len(list(tmp_path.glob('vocabulary*')))}", rows, facts)

    return make


class NgramEncoder:
    """Hashes character trigrams into a unit vector: names that look alike lie close together."""

    def __init__(self, dimension: int = 32) -> None:
        self.dimension = dimension
        self.fingerprint = f"trigrams-{dimension}"
        self.encoded: list[str] = []
        """Every name it was ever given."""

    def copy_to(self, folder: Path) -> None:
        """Write what it takes to make another."""
        folder.mkdir()
        (folder / "dimension.txt").write_text(str(self.dimension))

    def encode(self, names: Sequence[str]) -> NDArray[np.float32]:
        """Return one unit vector a name."""
        self.encoded.extend(names)
        vectors = np.zeros((len(names), self.dimension), np.float32)
        for row, name in enumerate(names):
            padded = f"  {name} "
            for start in range(len(padded) - 2):
                digest = hashlib.blake2b(padded[start : start + 3].encode(), digest_size=4).digest()
                number = int.from_bytes(digest)
                vectors[row, number % self.dimension] += 1 if number & (1 << 31) else -1
        vectors += 1e-3
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        return vectors
