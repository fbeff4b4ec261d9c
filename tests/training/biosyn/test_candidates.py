"""Candidates and their labels, compared with loops over all names."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from sapbert.errors import ArtifactError, SapbertError
from sapbert.text import fold
from sapbert.training.biosyn import candidates as module
from sapbert.training.biosyn.candidates import Candidates, CandidateSearch, mix_candidates
from sapbert.training.biosyn.dataset import BiosynDataset
from sapbert.training.biosyn.dataset_writer import write_biosyn_dataset
from tests.index.conftest import NgramEncoder, Row, write

Label = Callable[..., BiosynDataset]
ROWS: list[Row] = [
    ("x:1", "Heart attack"),
    ("x:1", "Myocardial infarction"),
    ("x:2", "Common cold"),
    ("x:2", "Cold"),
    ("x:3", "cold"),
    ("x:3", "Low temperature"),
    ("x:4", "Chest pain"),
    ("x:5", "Infarction of the lung"),
]
MENTIONS = [
    ("heart atack", "x:1"),
    ("colds", "x:3"),
    ("colds", "x:2"),
    ("infarctions", "x:1|x:5"),
    ("chest pains", "x:4"),
    ("chest pains", "x:4"),
    ("pain", "x:99"),
]


@pytest.fixture
def label(tmp_path: Path) -> Label:
    """Write a dataset of labelled mentions and a vocabulary: `label(rows, [("heart atack", "x:1")])`."""

    def make(rows: Sequence[Row] = ROWS, mentions: Sequence[tuple[str, str]] = MENTIONS) -> BiosynDataset:
        table = tmp_path / "train.tsv"
        lines = ["mention\tconcept_ids", *(f"{mention}\t{ids}" for mention, ids in mentions)]
        table.write_text("\n".join(lines) + "\n")
        vocabulary = write(tmp_path / "vocabulary", rows, {"aliases": [("x:4", "x:44")]})
        return write_biosyn_dataset(vocabulary, table, tmp_path / "labelled", overwrite=True)

    return make


def texts_of(labelled: BiosynDataset) -> list[str]:
    return labelled.mentions.span(0, len(labelled))


def test_a_mention_occurs_once_per_set_of_concepts(label: Label) -> None:
    labelled = label()

    assert texts_of(labelled) == ["heart atack", "colds", "colds", "chest pains", "infarctions"]
    assert labelled.manifest.counts["mentions without a known concept"] == 1
    gold = np.split(labelled.gold_concepts, labelled.gold_offsets[1:-1])
    assert [[labelled.name_table.concepts[number] for number in own] for own in gold] == [
        ["x:1"],
        ["x:3"],
        ["x:2"],
        ["x:4"],
        ["x:1", "x:5"],
    ]


def test_an_alias_is_resolved_to_its_concept(label: Label) -> None:
    assert texts_of(label(ROWS, [("chest ache", "x:44")])) == ["chest ache"]


def test_mentions_without_a_known_concept_are_refused_with_a_hint(label: Label, tmp_path: Path) -> None:
    with pytest.raises(SapbertError, match=r"train\.tsv: no mention has a concept of .*--prefix"):
        label(ROWS, [("pain", "x:99"), ("ache", "D12")])
    assert not (tmp_path / "labelled").exists()


def test_damage_is_found_on_opening(label: Label) -> None:
    labelled = label()
    np.save(labelled.path / "gold_concepts.npy", np.zeros(6, np.int64))
    with pytest.raises(ArtifactError, match=r"gold_concepts\.npy"):
        BiosynDataset.open(labelled.path)


def test_names_of_a_gold_concept_are_right(label: Label) -> None:
    labelled = label()
    rows = np.array([[*range(len(labelled.name_table)), -1]] * len(labelled))
    wanted = ["x:1", "x:3", "x:2", "x:4", "x:1 x:5"]
    named: dict[str, set[str]] = {}
    for concept, name in ((row[0], row[1]) for row in ROWS):
        named.setdefault(fold(name), set()).add(concept)
    expected = [
        [*(bool(named[labelled.name_table.folded[row]] & set(own.split())) for row in own_rows[:-1]), False]
        for own, own_rows in zip(wanted, rows.tolist(), strict=True)
    ]

    assert labelled.right(rows).tolist() == expected


rows_lists = st.lists(st.integers(0, 30), min_size=6, max_size=6, unique=True)


@given(
    st.lists(st.tuples(rows_lists, st.integers(0, 6), rows_lists), min_size=1, max_size=5), st.floats(0, 1)
)
def test_candidates_are_mixed_as_in_the_original(
    mentions: list[tuple[list[int], int, list[int]]], share: float
) -> None:
    by_spelling = np.array([own[:found] + [-1] * (6 - found) for own, found, _ in mentions])
    by_vector = np.array([own for *_, own in mentions])

    found = mix_candidates(by_spelling, by_vector, share)

    for own, (spelled, many, near) in zip(found.tolist(), mentions, strict=True):
        expected = spelled[:many][: 6 - int(6 * share)]
        for row in near:
            if len(expected) < 6 and row not in expected:
                expected.append(row)
        assert own == expected


def oracle(labelled: BiosynDataset, encoder: NgramEncoder, k: int, share: float) -> list[list[int]]:
    """Find candidates with a loop over all mentions and names."""
    sklearn = pytest.importorskip("sklearn.feature_extraction.text")
    names = labelled.name_table.folded.span(0, len(labelled.name_table))
    vectorizer = sklearn.TfidfVectorizer(analyzer="char", ngram_range=(1, 2)).fit(names)
    spelled, vectors = vectorizer.transform(names).toarray(), encoder.encode(names)
    found = []
    for text in texts_of(labelled):
        sparse = spelled @ vectorizer.transform([text]).toarray()[0]
        dense = vectors @ encoder.encode([text])[0]
        by_spelling = [row for row in _best(sparse) if sparse[row] > 0 and names[row] != text]
        rows = by_spelling[: k - int(k * share)]
        rows += [row for row in _best(dense) if row not in rows and names[row] != text]
        found.append(rows[:k])
    return found


def _best(scores: NDArray[np.float32]) -> list[int]:
    return sorted(range(len(scores)), key=lambda row: (-round(float(scores[row]), 5), row))


@pytest.mark.parametrize("exact", [module.EXACT_SEARCH_LIMIT, 1])
@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_the_search_equals_a_loop_over_all_names(
    label: Label, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, share: float, exact: int
) -> None:
    monkeypatch.setattr(module, "EXACT_SEARCH_LIMIT", exact)
    monkeypatch.setattr(module, "_MENTIONS_PER_BLOCK", 2)
    monkeypatch.setattr(module, "_NAMES_PER_BLOCK", 3)
    labelled, encoder = label(ROWS, [*MENTIONS, ("Chest pain", "x:4"), ("cold", "x:2")]), NgramEncoder(256)

    found = CandidateSearch(labelled, tmp_path / "run", 4).search(encoder, share)

    assert found.rows.tolist() == oracle(labelled, encoder, 4, share)
    for text, rows, dense in zip(texts_of(labelled), found.rows, found.dense, strict=True):
        names = labelled.name_table.folded.take(rows)
        assert dense == pytest.approx(encoder.encode(names) @ encoder.encode([text])[0], abs=0.02)
    assert not (tmp_path / "run" / "vectors").exists()


def test_a_name_equal_to_the_mention_is_not_a_candidate(label: Label, tmp_path: Path) -> None:
    labelled = label(ROWS, [("myocardial infarction", "x:1")])
    found = CandidateSearch(labelled, tmp_path / "run", 8).search(NgramEncoder(), 0.5)

    named = labelled.name_table.folded.take(found.rows[0][found.rows[0] >= 0])
    assert sorted(named) == sorted({fold(row[1]) for row in ROWS} - {"myocardial infarction"})
    assert labelled.name_table.folded.take(found.rows[0][found.right[0]]) == ["heart attack"]


def test_a_small_vocabulary_gives_fewer_candidates(label: Label, tmp_path: Path) -> None:
    labelled = label(ROWS[:2], MENTIONS[:1])
    found = CandidateSearch(labelled, tmp_path / "run", 4).search(NgramEncoder(), 0.5)

    assert sorted(found.rows[0].tolist()) == [-1, -1, 0, 1]
    assert found.right[0].tolist() == (found.rows[0] >= 0).tolist()


def test_every_name_and_mention_is_encoded_once(label: Label, tmp_path: Path) -> None:
    labelled, encoder = label(), NgramEncoder()
    CandidateSearch(labelled, tmp_path / "run", 4).search(encoder, 0.5)
    names = labelled.name_table.folded.span(0, len(labelled.name_table))
    assert encoder.encoded == [*names, *texts_of(labelled)]


def test_recall_and_accuracy_of_candidates() -> None:
    found = Candidates(
        rows=np.array([[0, 1], [2, 3], [4, -1]]),
        dense=np.array([[0.9, 0.8], [0.5, 0.4], [-0.5, 0.0]], np.float32),
        sparse=np.array([[0.0, 0.5], [0.0, 0.9], [0.1, 0.0]], np.float32),
        right=np.array([[True, False], [False, True], [False, False]]),
    )
    assert found.recall() == pytest.approx(2 / 3)
    assert found.accuracy(0.0) == pytest.approx(1 / 3)
    assert found.accuracy(0.15) == pytest.approx(2 / 3)
    assert found.accuracy(1.0) == pytest.approx(1 / 3)
