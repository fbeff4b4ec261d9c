"""A tiny encoder, and pairs of a small artificial vocabulary."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from sapbert.pairs.artifact import Pairs
from sapbert.pairs.draw import draw_pairs
from sapbert.pairs.settings import PairSettings
from sapbert.vocab.input_files import InputReader
from sapbert.vocab.vocabulary import Vocabulary
from sapbert.vocab.writer import write_vocabulary
from tests.encoder.conftest import one_thread as one_thread
from tests.encoder.tiny import WORDS, tiny_bert

CONCEPTS, NAMES = 30, 4


@pytest.fixture(scope="session")
def tiny_pairs(tmp_path_factory: pytest.TempPathFactory) -> Pairs:
    """Thirty concepts with four names each, and one text that names two of them."""
    folder = tmp_path_factory.mktemp("pairs")
    words = [word for word in WORDS if not word.startswith("#")]
    rows = [
        (f"x:{concept:02}", " ".join([words[concept % 23], words[concept // 4], *words[name : name + 2]]))
        for concept in range(CONCEPTS)
        for name in range(NAMES)
    ]
    rows += [("x:00", "ambiguous"), ("x:01", "ambiguous")]
    with write_vocabulary(folder / "vocabulary", {}, InputReader()) as writer:
        writer.add(pl.DataFrame(rows, schema=["concept_id", "name"], orient="row"))
    return draw_pairs(Vocabulary.open(folder / "vocabulary"), folder / "pairs", PairSettings())


@pytest.fixture(scope="session")
def tiny_base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random two-layer BERT."""
    return tiny_bert(tmp_path_factory.mktemp("base") / "bert")
