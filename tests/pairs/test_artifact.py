from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sapbert.arrays import ArrayWriter, Texts
from sapbert.artifacts import Manifest, create
from sapbert.errors import ArtifactError
from sapbert.pairs.artifact import KIND, Pairs
from sapbert.pairs.draw import draw_pairs
from sapbert.pairs.settings import PairSettings
from sapbert.vocab.vocabulary import Vocabulary
from tests.pairs.test_draw import Row, write


@pytest.fixture
def vocabulary(tmp_path: Path) -> Vocabulary:
    rows = [
        ("x:cold", "cold", "en"),
        ("x:cold", "common cold", "en"),
        ("x:chill", "cold", "en"),
        ("x:chill", "low temperature", "en"),
        ("x:flu", "flu", "en"),
        ("x:flu", "gripe", "es"),
        ("x:flu", "\uff47rippe 感冒", "zh"),
    ]
    return write(tmp_path / "vocabulary", rows)


@pytest.fixture
def pairs(vocabulary: Vocabulary, tmp_path: Path) -> Pairs:
    return draw_pairs(vocabulary, tmp_path / "pairs", PairSettings())


def row_of(pairs: Pairs, concept: str, text: str) -> int:
    [row] = [
        row
        for row in range(len(pairs.names))
        if (pairs.concept_ids[int(pairs.concepts[row])], pairs.names[row]) == (concept, text)
    ]
    return row


# The arrays


def test_arrays_are_mapped_and_not_loaded(pairs: Pairs) -> None:
    arrays = (
        pairs.names.data,
        pairs.names.offsets,
        pairs.concepts,
        pairs.concept_ids.data,
        pairs.concept_ids.offsets,
        pairs.pairs,
        pairs.homonyms,
    )
    for array in arrays:
        assert isinstance(array.base, np.memmap)
        assert not array.flags.writeable


def test_arrays_have_the_documented_types(pairs: Pairs) -> None:
    for array, dtype in (
        (pairs.names.data, "|u1"),
        (pairs.names.offsets, "<i8"),
        (pairs.concepts, "<i4"),
        (pairs.concept_ids.data, "|u1"),
        (pairs.concept_ids.offsets, "<i8"),
        (pairs.pairs, "<i4"),
        (pairs.homonyms, "<i4"),
    ):
        assert array.dtype.str == dtype


def test_texts_are_read_by_row_by_rows_and_by_span(pairs: Pairs) -> None:
    row = row_of(pairs, "x:flu", "grippe 感冒")
    every = [pairs.names[number] for number in range(len(pairs.names))]

    assert pairs.names.take([row, 0]) == [every[row], every[0]]
    assert pairs.names.take(np.array([row])) == [every[row]]
    assert pairs.names.span(0, len(pairs.names)) == every
    assert pairs.names.span(1, 3) == every[1:3]
    assert pairs.names.span(2, 2) == []


def test_negative_rows_count_from_the_end_and_a_missing_row_is_an_error(pairs: Pairs) -> None:
    assert pairs.names[-1] == pairs.names[len(pairs.names) - 1]
    for row in (-len(pairs.names) - 1, len(pairs.names)):
        with pytest.raises(IndexError):
            pairs.names[row]


@given(st.lists(st.text(max_size=5)), st.data())
def test_texts_are_unchanged(strings: list[str], data: st.DataObject) -> None:
    encoded = [string.encode("utf-8", "replace") for string in strings]
    offsets = np.cumsum([0, *(len(text) for text in encoded)], dtype=np.int64)
    texts = Texts(np.frombuffer(b"".join(encoded), np.uint8), offsets)

    assert texts.span(0, len(texts)) == [text.decode() for text in encoded]
    assert list(texts.take(range(len(texts)))) == texts.span(0, len(texts))
    some = data.draw(st.lists(st.integers(0, len(texts) - 1), max_size=8) if strings else st.just([]))
    assert texts.take(some) == [encoded[row].decode() for row in some]


def test_pairs_are_counted(pairs: Pairs) -> None:
    assert len(pairs) == len(pairs.pairs) == pairs.manifest.counts["pairs"] == 5


@given(st.lists(st.lists(st.tuples(st.integers(-5, 5), st.integers(-5, 5)), max_size=4), max_size=4))
def test_an_array_can_be_written_in_parts(
    tmp_path_factory: pytest.TempPathFactory, pieces: list[list[tuple[int, int]]]
) -> None:
    path = tmp_path_factory.mktemp("array") / "array.npy"
    arrays = [np.array(piece, np.int64).reshape(-1, 2) for piece in pieces]
    with ArrayWriter(path, np.int32, 2) as writer:
        for array in arrays:
            writer.append(array)

    found = np.load(path, mmap_mode="r")
    assert found.dtype == np.int32
    assert np.array_equal(found, np.concatenate([np.empty((0, 2)), *arrays]))


# Opening


BARE = """
import sys
for module in ("polars", "rich", "typer", "torch"):
    sys.modules[module] = None
from sapbert.pairs.artifact import Pairs
pairs = Pairs.open(sys.argv[1])
print(len(pairs), pairs.names[0], pairs.share_concept(pairs.pairs[0]).all())
"""


def test_opening_imports_no_polars_and_nothing_large(pairs: Pairs) -> None:
    done = subprocess.run(
        [sys.executable, "-c", BARE, str(pairs.path)], capture_output=True, text=True, check=False
    )

    assert (done.stdout, done.stderr) == ("5 cold True\n", "")


def test_a_vocabulary_is_not_opened_as_pairs(vocabulary: Vocabulary) -> None:
    with pytest.raises(ArtifactError, match="is a vocabulary, not a folder of pairs"):
        Pairs.open(vocabulary.path)


def test_a_changed_byte_is_found(pairs: Pairs) -> None:
    file = pairs.path / "pairs.npy"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)

    with pytest.raises(ArtifactError, match=r"pairs\.npy does not match its checksum"):
        Pairs.open(pairs.path)


def test_a_pickle_is_never_loaded(tmp_path: Path) -> None:
    with create(tmp_path / "evil") as draft:
        for name in ("names", "offsets", "concepts", "concept_ids", "concept_offsets", "pairs", "homonyms"):
            np.save(draft.path / f"{name}.npy", np.array([object()]), allow_pickle=True)
        draft.seal(KIND, settings={}, inputs={}, counts={})

    with pytest.raises(ArtifactError, match="contains no array"):
        Pairs.open(tmp_path / "evil")


# Which names share a concept


def test_an_ambiguous_name_shares_a_concept_with_the_names_of_each(pairs: Pairs) -> None:
    rows = np.array(
        [
            row_of(pairs, "x:cold", "cold"),
            row_of(pairs, "x:cold", "common cold"),
            row_of(pairs, "x:chill", "low temperature"),
            row_of(pairs, "x:flu", "flu"),
        ]
    )

    assert pairs.share_concept(rows).tolist() == [
        [True, True, True, False],
        [True, True, False, False],
        [True, False, True, False],
        [False, False, False, True],
    ]


def test_an_empty_list_of_rows_shares_nothing(pairs: Pairs) -> None:
    assert pairs.share_concept(np.empty(0, np.int64)).shape == (0, 0)


def test_without_ambiguous_names_only_a_concepts_own_names_share_it(tmp_path: Path) -> None:
    rows: list[Row] = [("x:1", "a", "en"), ("x:1", "b", "en"), ("x:2", "c", "en"), ("x:2", "d", "en")]
    pairs = draw_pairs(write(tmp_path / "vocabulary", rows), tmp_path / "pairs", PairSettings())

    assert pairs.homonyms.shape == (0, 2)
    shared = pairs.share_concept(np.arange(4))
    assert shared.tolist() == [[i // 2 == j // 2 for j in range(4)] for i in range(4)]


def in_memory(names: list[tuple[int, str]]) -> Pairs:
    """Make pairs in memory, of names given as concept and text."""
    by_text: dict[str, list[int]] = {}
    for row, (_, text) in enumerate(names):
        by_text.setdefault(text, []).append(row)
    groups = [rows for rows in by_text.values() if len(rows) > 1]
    homonyms = sorted((row, group) for group, rows in enumerate(groups) for row in rows)
    nothing = Texts(np.empty(0, np.uint8), np.zeros(1, np.int64))
    return Pairs(
        Path(),
        Manifest(kind=KIND, fingerprint=""),
        nothing,
        np.array([concept for concept, _ in names], np.int32),
        nothing,
        np.empty((0, 2), np.int32),
        np.array(homonyms, np.int32).reshape(-1, 2),
    )


names_of_concepts = st.sets(st.tuples(st.integers(0, 5), st.sampled_from("abcdefghij")), min_size=1).map(
    sorted
)


@given(names_of_concepts, st.data())
def test_names_share_a_concept_if_their_texts_do(names: list[tuple[int, str]], data: st.DataObject) -> None:
    rows = data.draw(st.lists(st.integers(0, len(names) - 1), max_size=12))
    concepts_of: dict[str, set[int]] = {}
    for concept, text in names:
        concepts_of.setdefault(text, set()).add(concept)

    shared = in_memory(names).share_concept(np.array(rows, np.int64))

    texts = [names[row][1] for row in rows]
    assert shared.tolist() == [[bool(concepts_of[a] & concepts_of[b]) for b in texts] for a in texts]
