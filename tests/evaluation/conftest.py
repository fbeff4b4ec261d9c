"""Small evaluation sets: a dictionary, mentions, and a ranker with given answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from sapbert.evaluation.benchmarks.dataset import Dictionary, make_dictionary, mention_table
from sapbert.evaluation.benchmarks.loader import EvaluationSet, open_evaluation_set
from sapbert.evaluation.rankers import Ranked, Ranker, RankerFactory
from tests.conftest import GOLDEN


def dictionary(names: Mapping[str, str]) -> Dictionary:
    """A dictionary of name → ids."""
    return make_dictionary(
        pl.Series(list(names), dtype=pl.String), pl.Series(list(names.values()), dtype=pl.String)
    )


def mentions(*rows: tuple[str, str], type: Sequence[str] | None = None) -> pl.DataFrame:
    """Mentions with their ids; `|` parts the ones and joins the others."""
    columns = {
        "mention": pl.Series([mention for mention, _ in rows], dtype=pl.String),
        "ids": pl.Series([ids for _, ids in rows], dtype=pl.String),
    }
    if type is not None:
        columns["type"] = pl.Series(type, dtype=pl.String)
    return mention_table(columns, composite=True)


def ranker_answering(answers: Mapping[str, Sequence[str]]) -> RankerFactory:
    """A ranker that answers each mention with the names given, best first."""
    return scored(
        {
            mention: [(name, 1 - place / 100) for place, name in enumerate(names)]
            for mention, names in answers.items()
        }
    )


def scored(answers: Mapping[str, Sequence[tuple[str, float]]]) -> RankerFactory:
    """A ranker that answers each mention with the names and scores given, best first."""

    class FixedRanker:
        def __init__(self, names: Sequence[str]) -> None:
            self._rows = {name: row for row, name in enumerate(names)}

        def rank(self, mentions: Sequence[str], k: int) -> Ranked:
            scores, rows = np.zeros((len(mentions), k), np.float32), np.full((len(mentions), k), -1, np.int64)
            for at, mention in enumerate(mentions):
                for place, (name, score) in enumerate(list(answers.get(mention, ()))[:k]):
                    rows[at, place], scores[at, place] = self._rows[name], score
            return scores, rows

    def build(names: Sequence[str]) -> Ranker:
        return FixedRanker(names)

    return build


def small_set(
    names: Mapping[str, str], test: pl.DataFrame, *, train: pl.DataFrame | None = None
) -> EvaluationSet:
    """A set with one dictionary."""
    splits = {"test": test} if train is None else {"train": train, "test": test}
    return EvaluationSet("small", splits, dictionary(names), None, {"file": {"xxh3": "0"}})


@pytest.fixture
def plain() -> EvaluationSet:
    return open_evaluation_set(GOLDEN / "benchmarks" / "plain")


@pytest.fixture
def plain_folder() -> Path:
    return GOLDEN / "benchmarks" / "plain"
