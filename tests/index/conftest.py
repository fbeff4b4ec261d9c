"""Fixtures: make a vocabulary from names, and an encoder without a model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import polars as pl
import pytest

from sapbert.vocab.input_files import InputReader
from sapbert.vocab.vocabulary import Vocabulary
from sapbert.vocab.writer import FACTS, write_vocabulary
from tests.index.ngrams import NgramEncoder as NgramEncoder

Row = tuple[str, ...]
"""Concept, name and, optionally, source, language, rank, kind, count."""
Facts = Mapping[str, Sequence[tuple[str, ...]]]
MakeVocabulary = Callable[..., Vocabulary]
_COLUMNS = ["concept_id", "name", "source", "language", "rank", "kind", "count"]


def write(path: Path, rows: Sequence[Row], facts: Facts | None = None) -> Vocabulary:
    """Write a vocabulary of `rows` and, by table, its facts."""
    full = [(*row, *("", "en", "0", "", "0")[len(row) - 2 :]) for row in rows]
    with write_vocabulary(path, {}, inputs := InputReader(), overwrite=True) as writer:
        writer.add(pl.DataFrame(full, schema=_COLUMNS, orient="row"))
        for table, pairs in (facts or {}).items():
            writer.add_facts(table, pl.DataFrame(pairs, schema=list(FACTS[table]), orient="row"))
    assert not inputs.skipped_rows
    return Vocabulary.open(path)


@pytest.fixture
def vocabulary_of(tmp_path: Path) -> MakeVocabulary:
    """Write a vocabulary: `vocabulary_of([("x:1", "cold")], {"types": [("x:1", "T047")]})`."""

    def make(rows: Sequence[Row], facts: Facts | None = None) -> Vocabulary:
        return write(tmp_path / f"vocabulary{len(list(tmp_path.glob('vocabulary*')))}", rows, facts)

    return make
