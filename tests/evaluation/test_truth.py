"""The whole evaluation against slow loops that know nothing of it: they read the raw text themselves."""

from __future__ import annotations

import gzip
import math
import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from sapbert.evaluation.benchmarks.dataset import make_dictionary
from sapbert.evaluation.benchmarks.loader import EvaluationSet, open_evaluation_set
from sapbert.evaluation.metrics import compute_metrics
from sapbert.evaluation.rankers import Ranker, ScoringRanker, baseline
from sapbert.evaluation.run import evaluate
from tests.evaluation.conftest import mentions

Rows = Sequence[tuple[str, str]]


def slow_names(rows: Rows) -> dict[str, set[str]]:
    """Names in order of first appearance, each with the ids of all rows that have it."""
    names: dict[str, set[str]] = {}
    for name, ids in rows:
        names.setdefault(name.strip().lower(), set()).update(re.split(r"[|+]", ids))
    return names


def slow_rank(mention: str, ids: str, ranked: dict[str, list[str]], names: dict[str, set[str]]) -> int | None:
    """The least k at which every part of a mention has a right name among its first k."""
    gold = set(re.split(r"[|+]", ids))
    worst = 0
    for part in mention.lower().split("|"):
        places = [place for place, name in enumerate(ranked[part][:20], 1) if names[name] & gold]
        if not places:
            return None
        worst = max(worst, places[0])
    return worst


def shared_letters(left: str, right: str) -> int:
    return len(set(left) & set(right) - {" "})


def letters_ranker(names: Sequence[str]) -> Ranker:
    """Ranks by how many letters are shared: most scores are ties."""

    def score(texts: Sequence[str]) -> NDArray[np.float32]:
        return np.array([[shared_letters(text, name) for name in names] for text in texts], np.float32)

    return ScoringRanker(score, len(names))


TEXTS = st.text("abcD", min_size=1, max_size=3)
IDS = st.lists(st.sampled_from("ABCDEX"), min_size=1, max_size=3, unique=True)
GOLD = st.tuples(IDS, st.sampled_from("|+")).map(lambda found: found[1].join(found[0]))
NAMES = st.lists(st.tuples(TEXTS, IDS.map("|".join)), min_size=1, max_size=8)
MENTIONS = st.lists(
    st.tuples(st.lists(TEXTS, min_size=1, max_size=2).map("|".join), GOLD), min_size=1, max_size=6
)


@given(NAMES, MENTIONS)
def test_an_evaluation_agrees_with_slow_loops_over_the_raw_text(rows: Rows, test: Rows) -> None:
    """Ids that no name has, mentions that come twice, ties, and `|` and `+` are all among these."""
    columns = (pl.Series([row[place] for row in rows], dtype=pl.String) for place in (0, 1))
    found = evaluate(
        EvaluationSet("random", {"test": mentions(*test)}, make_dictionary(*columns), None, {}),
        letters_ranker,
    )

    names = slow_names(rows)
    ranked = {}
    for part in {part for mention, _ in test for part in mention.lower().split("|")}:
        scores = {name: shared_letters(part, name) for name in names}
        ranked[part] = sorted((name for name in names if scores[name]), key=lambda name: -scores[name])
    assert found.results["rank"].to_list() == [slow_rank(*mention, ranked, names) for mention in test]


class SlowTfidf:
    """Character 1- and 2-grams, counted and weighed one by one."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = names
        counts = [Counter(self.grams(name)) for name in names]
        documents = Counter(gram for own in counts for gram in own)
        self.rarity = {gram: math.log((1 + len(names)) / (1 + n)) + 1 for gram, n in documents.items()}
        self.rows: dict[str, list[tuple[int, float]]] = defaultdict(list)
        for row, own in enumerate(counts):
            for gram, weight in self.weights(own).items():
                self.rows[gram].append((row, weight))

    @staticmethod
    def grams(text: str) -> list[str]:
        return [*text, *(text[at : at + 2] for at in range(len(text) - 1))]

    def weights(self, counts: Counter[str]) -> dict[str, float]:
        raw = {gram: count * self.rarity[gram] for gram, count in counts.items() if gram in self.rarity}
        length = math.sqrt(sum(weight * weight for weight in raw.values()))
        return {gram: weight / length for gram, weight in raw.items()}

    def best(self, mention: str) -> list[str]:
        scores = [0.0] * len(self.names)
        for gram, weight in self.weights(Counter(self.grams(mention))).items():
            for row, own in self.rows[gram]:
                scores[row] += weight * own
        order = sorted(range(len(scores)), key=lambda row: (-round(scores[row], 6), row))
        return [self.names[row] for row in order[:20]]


@pytest.mark.shared_data
@pytest.mark.slow
def test_tfidf_on_ncbi_agrees_with_slow_loops_over_the_files(shared_data: Path) -> None:
    folder = shared_data / "benchmarks" / "ncbi-disease"
    found = evaluate(replace(open_evaluation_set(folder), dictionary=None), baseline("tfidf")).results

    with gzip.open(folder / "test_dictionary.tsv.gz", "rt", encoding="utf-8") as file:
        lines = [line.rstrip("\n").split("\t") for line in file][1:]
    names = slow_names([(name, ids) for ids, name in lines])
    with gzip.open(folder / "test.tsv.gz", "rt", encoding="utf-8") as file:
        test = [line.rstrip("\n").split("\t") for line in file][1:]
    slow, looked_at = SlowTfidf(list(names)), range(0, len(test), 80)
    ranks = []
    for number in looked_at:
        mention, ids = test[number][1], test[number][2]
        ranked = {part: slow.best(part) for part in mention.split("|")}
        ranks.append(slow_rank(mention, ids, ranked, names))

    assert found["rank"].gather(list(looked_at)).to_list() == ranks
    accuracy = compute_metrics(found).accuracy
    assert (accuracy[1], accuracy[5]) == pytest.approx((0.877, 0.905), abs=0.001)
