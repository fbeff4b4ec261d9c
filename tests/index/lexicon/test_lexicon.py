from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sapbert.errors import ArtifactError
from sapbert.index.lexicon.lexicon import Lexicon, write_lexicon
from sapbert.index.lexicon.words import Gap, Splitter
from sapbert.index.name_table import NameTable
from sapbert.index.name_table_writer import write_name_table
from tests.index.conftest import write

NAMES = (
    "Breast cancer",
    "Cancer",
    "Diabetes Mellitus, Type 2",
    "IL-6",
    "E. coli infection",
    "Vitamin A",
    "心肌梗死",
    "Head and neck cancer",
    "5",
)


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> NameTable:
    folder = tmp_path_factory.mktemp("lexicon")
    (folder / "entries").mkdir()
    rows = [(f"x:{number}", name) for number, name in enumerate(NAMES)]
    table = write_name_table(write(folder / "vocabulary", rows), folder / "entries")
    (folder / "lexicon").mkdir()
    write_lexicon(table, folder / "lexicon")
    return table


@pytest.fixture(scope="module")
def lexicon(table: NameTable, tmp_path_factory: pytest.TempPathFactory) -> Lexicon:
    folder = tmp_path_factory.mktemp("files")
    write_lexicon(table, folder)
    return Lexicon.open(folder, names=len(table))


def found(lexicon: Lexicon, table: NameTable, text: str) -> set[tuple[str, str]]:
    words = Splitter().split([text])
    hits = lexicon.find(words)
    return {
        (text[words.start[first] : words.end[last]], table.texts[row])
        for first, last, row in zip(*(column.tolist() for column in hits[:3]), strict=True)
    }


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("cancers of the breast", {("cancers", "Cancer"), ("cancers of the breast", "Breast cancer")}),
        ("a breast-cancer gene", {("cancer", "Cancer"), ("breast-cancer", "Breast cancer")}),
        ("type 2 diabetes mellitus", {("type 2 diabetes mellitus", "Diabetes Mellitus, Type 2")}),
        ("IL6, il 6 and IL-6.", {("IL6", "IL-6"), ("il 6", "IL-6"), ("IL-6", "IL-6")}),
        ("IL-60 or IL6R", set()),
        ("E. coli infections", {("E. coli infections", "E. coli infection")}),
        ("vitamin A, a vitamin", {("vitamin A", "Vitamin A")}),
        ("急性心肌梗死患者", {("心肌梗死", "心肌梗死")}),
        ("breast. Cancer", {("Cancer", "Cancer")}),
        ("cancer, breast pain", {("cancer", "Cancer")}),
        ("head or neck cancer", {("cancer", "Cancer")}),
        ("5 of them", set()),
    ],
)
def test_names_are_found_by_their_words(
    lexicon: Lexicon, table: NameTable, text: str, expected: set[tuple[str, str]]
) -> None:
    assert found(lexicon, table, text) == expected


words = st.sampled_from(["breast", "Breasts", "cancer", "of", "the", "type", "2", "IL", "6", "and", "neck"])
gaps = st.sampled_from([" ", "-", ", ", ". ", "", "\n"])


@given(st.lists(st.tuples(words, gaps), max_size=14))
def test_the_result_is_that_of_comparing_every_span(
    lexicon: Lexicon, table: NameTable, pieces: list[tuple[str, str]]
) -> None:
    text = "".join(itertools.chain.from_iterable(pieces))
    split = Splitter().split([text])
    bags: dict[tuple[int, ...], list[tuple[int, tuple[int, ...]]]] = {}
    for row in range(len(table)):
        name = Splitter().split([table.texts[row]])
        of_name = tuple(name.hash[name.content].tolist())
        bags.setdefault(tuple(sorted(of_name)), []).append((row, of_name))
    expected = set()
    length = split.end - split.start
    for first, last in itertools.combinations_with_replacement(range(len(split)), 2):
        inner = split.gap[first + 1 : last + 1]
        before, after = split.gap[first], split.gap[last + 1] if last + 1 < len(split) else Gap.BREAK
        whole = before != Gap.NONE and after != Gap.NONE
        whole &= not (before == Gap.HYPHEN and length[first - 1] == 1)
        whole &= not (after == Gap.HYPHEN and length[last + 1] == 1)
        if not whole or (inner >= Gap.COLON).any() or not (split.content[first] and split.content[last]):
            continue
        content = split.content[first : last + 1]
        hashes = tuple(split.hash[first : last + 1][content].tolist())
        if len(content) - content.sum() > 3:
            continue
        for row, ordered in bags.get(tuple(sorted(hashes)), []):
            special = np.isin(inner, (Gap.COMMA, Gap.NONE)).any()
            if table.texts[row] != "5" and (hashes == ordered or not special):
                expected.add((first, last, row))

    hits = lexicon.find(split)
    assert set(zip(hits.first.tolist(), hits.last.tolist(), hits.row.tolist(), strict=True)) == expected


def test_a_damaged_or_older_lexicon_is_refused(table: NameTable, tmp_path: Path) -> None:
    write_lexicon(table, tmp_path)
    np.save(tmp_path / "rows.npy", np.full(len(NAMES) - 1, 99, np.int32))
    with pytest.raises(ArtifactError, match="damaged"):
        Lexicon.open(tmp_path, names=len(table))
    np.save(tmp_path / "version.npy", np.array([0], np.int32))
    with pytest.raises(ArtifactError, match="make the index again"):
        Lexicon.open(tmp_path, names=len(table))
