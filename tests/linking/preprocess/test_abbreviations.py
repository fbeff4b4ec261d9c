"""Abbreviations defined in documents, and their expansion in mentions."""

from __future__ import annotations

import csv
import gzip
from collections import defaultdict
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sapbert.linking.preprocess.abbreviations import expand, find_abbreviations


@pytest.mark.parametrize(
    ("document", "short", "long"),
    [
        ("Familial adenomatous polyposis (FAP) is rare.", "FAP", "Familial adenomatous polyposis"),
        ("FAP (familial adenomatous polyposis) is rare.", "FAP", "familial adenomatous polyposis"),
        ("patients with type 2 diabetes [T2D] of any age", "T2D", "type 2 diabetes"),
        ("in chronic myeloid leukaemia (CML, n = 12)", "CML", "chronic myeloid leukaemia"),
        ("the enzyme glucose-6-phosphate dehydrogenase (G6PD)", "G6PD", "glucose-6-phosphate dehydrogenase"),
        ("a dominant trait. van der Woude syndrome (VWS)", "VWS", "van der Woude syndrome"),
        ("of hereditary hemochromatosis (HH)", "HH", "hereditary hemochromatosis"),
    ],
)
def test_a_definition_is_found(document: str, short: str, long: str) -> None:
    assert find_abbreviations(document) == {short: long}


@pytest.mark.parametrize(
    "document",
    [
        "",
        "no parenthesis at all",
        "heart failure (see below)",
        "in 34 patients (12%)",
        "the effect was small (P < 0.05)",
        "pain (paroxysmal attack in neck)",
        "the disease (XYZ)",
        "((((((((",
        "(AB",
    ],
)
def test_other_parentheses_are_no_definitions(document: str) -> None:
    assert find_abbreviations(document) == {}


def test_the_first_definition_counts() -> None:
    document = "Cleft palate (CP) differs. Cerebral palsy (CP) does too."

    assert find_abbreviations(document) == {"CP": "Cleft palate"}


def test_short_forms_in_a_long_form_are_expanded() -> None:
    document = "Familial adenomatous polyposis (FAP) and attenuated FAP (AFAP) differ."

    assert find_abbreviations(document)["AFAP"] == "attenuated Familial adenomatous polyposis"


@pytest.mark.parametrize(
    ("mention", "expanded"),
    [
        ("GH deficiency", "growth hormone deficiency"),
        ("GH-deficient", "growth hormone-deficient"),
        ("growth hormone (GH) deficiency", "growth hormone deficiency"),
        ("growth hormone", "growth hormone"),
        ("GHB", "GHB"),
        ("gh", "gh"),
        ("HIV-1 infection", "human immunodeficiency virus type 1 infection"),
        ("", ""),
    ],
)
def test_only_whole_short_forms_are_expanded(mention: str, expanded: str) -> None:
    known = {
        "GH": "growth hormone",
        "HIV": "human immunodeficiency virus",
        "HIV-1": "human immunodeficiency virus type 1",
    }

    assert expand(mention, known) == expanded


@given(st.text(alphabet="aAbB ()[],;.-1", max_size=80))
def test_a_long_form_is_longer_than_its_short_form_and_comes_from_the_document(document: str) -> None:
    for short, long in find_abbreviations(document).items():
        assert short in document
        assert len(long) > len(short)


@given(st.text(max_size=80))
def test_without_definitions_nothing_changes(mention: str) -> None:
    assert expand(mention, {}) == mention


def test_a_hostile_document_is_processed_in_time() -> None:
    find_abbreviations("(" * 100_000 + " " * 100_000 + "(a" * 50_000 + "long form (LF)" * 5_000)


@pytest.mark.shared_data
def test_nearly_all_abbreviations_in_real_abstracts_are_expanded_as_in_the_benchmark(
    shared_data: Path,
) -> None:
    """Those of the benchmark were found by Ab3P, which has other rules."""
    documents: dict[str, str] = defaultdict(str)
    with gzip.open(shared_data / "raw" / "NCBItestset_corpus.txt.gz", "rt", encoding="utf-8") as corpus:
        for line in corpus:
            number, kind, text = [*line.rstrip("\n").split("|", 2), "", ""][:3]
            if kind in ("t", "a"):
                documents[number] += f"{text}\n"
    known = {number: find_abbreviations(text) for number, text in documents.items()}

    with gzip.open(shared_data / "benchmarks/ncbi-disease/test.tsv.gz", "rt", encoding="utf-8") as table:
        rows = list(csv.DictReader(table, delimiter="\t", quoting=csv.QUOTE_NONE))
    expanded = [row for row in rows if row["abbr_expanded"] == "1"]
    alike = [
        row
        for row in expanded
        if _words(expand(row["raw_mention"], known[row["doc_id"]])) == _words(row["mention"])
    ]

    assert len(expanded) > 200
    assert len(alike) / len(expanded) > 0.95


def _words(text: str) -> list[str]:
    return "".join(character if character.isalnum() else " " for character in text.lower()).split()
