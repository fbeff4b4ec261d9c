"""The lexicon in `data/`: a phrase with two names would teach that two concepts are one."""

from __future__ import annotations

import csv
import gzip
from collections import Counter, defaultdict
from pathlib import Path

import pytest

from sapbert.text import fold

LEXICON = Path(__file__).parents[1] / "data" / "lay-language.tsv"


def pairs() -> list[tuple[str, str]]:
    header, *rows = LEXICON.read_bytes().decode("utf-8").removesuffix("\n").split("\n")
    assert header == "name\tlay"
    return [(name, lay) for name, lay in (row.split("\t") for row in rows)]


def test_every_phrase_is_one_tidy_line_in_lower_case() -> None:
    assert [text for pair in pairs() for text in pair if not text or text != fold(text)] == []


def test_a_phrase_has_one_name_and_is_not_a_name_itself() -> None:
    names = {name for name, _ in pairs()}
    phrases = Counter(lay for _, lay in pairs())
    assert [lay for lay, times in phrases.items() if times > 1] == []
    assert names & phrases.keys() == set()


def test_a_phrase_is_longer_than_two_letters() -> None:
    assert [lay for _, lay in pairs() if len(lay) < 3] == []


def test_rows_are_sorted_so_that_changes_read_well() -> None:
    assert pairs() == sorted(pairs())


@pytest.mark.shared_data
def test_no_phrase_is_a_mesh_name_of_another_concept(shared_data: Path) -> None:
    concepts = defaultdict(set)
    with gzip.open(shared_data / "vocabularies" / "mesh_descriptors.tsv.gz", "rt", encoding="utf-8") as table:
        for row in csv.DictReader(table, delimiter="\t", quoting=csv.QUOTE_NONE):
            concepts[fold(row["name"])].add(row["concept_id"])
    known = [(name, lay) for name, lay in pairs() if name in concepts and lay in concepts]
    assert known
    assert [pair for pair in known if not concepts[pair[0]] & concepts[pair[1]]] == []
