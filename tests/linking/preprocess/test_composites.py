"""Composite mentions."""

from __future__ import annotations

import csv
import gzip
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sapbert.linking.preprocess.composites import split_composite


@pytest.mark.parametrize(
    ("mention", "parts"),
    [
        ("breast and ovarian cancer", ["breast cancer", "ovarian cancer"]),
        ("breast and/or ovarian cancer", ["breast cancer", "ovarian cancer"]),
        ("breast/ovarian cancer", ["breast cancer", "ovarian cancer"]),
        (
            "Saethre-Chotzen, Crouzon, and Pfeiffer syndromes",
            ["Saethre-Chotzen syndromes", "Crouzon syndromes", "Pfeiffer syndromes"],
        ),
        (
            "Duchenne or Becker muscular dystrophy",
            ["Duchenne muscular dystrophy", "Becker muscular dystrophy"],
        ),
        ("C6 and C7 deficiency", ["C6 deficiency", "C7 deficiency"]),
        ("retinal and the pineal tumours", ["retinal tumours", "pineal tumours"]),
        ("renal failure and hepatic failure", ["renal failure", "hepatic failure"]),
        ("stage II and stage III cancer", ["stage II cancer", "stage III cancer"]),
        ("hereditary and non hereditary deafness", ["hereditary deafness", "non hereditary deafness"]),
        ("cancer of the breast and ovaries", ["cancer of the breast", "cancer of the ovaries"]),
        ("impairments in learning and memory", ["impairments in learning", "impairments in memory"]),
        (
            "colorectal, breast and head and neck cancers",
            ["colorectal cancers", "breast cancers", "head and neck cancers"],
        ),
    ],
)
def test_a_composite_mention_is_split(mention: str, parts: list[str]) -> None:
    assert split_composite(mention) == parts


@pytest.mark.parametrize(
    "mention",
    [
        "",
        "breast cancer",
        "head and neck cancer",
        "nausea and vomiting",
        "nausea, vomiting",
        "hyper- or hypotension",
        "lopinavir/ritonavir",
        "5,7-dihydroxytryptamine",
        "d,l-sotalol",
        "autoimmune lymphoproliferative syndrome, type Ia",
        "complement deficiencies (C2 and C7)",
        "breast and 79 ovarian cancer",
        "endometrial hyperplasia or cancer",
        "and",
        " and/or  cancer",
        "x and y " * 1000,
    ],
)
def test_other_mentions_are_not_split(mention: str) -> None:
    assert split_composite(mention) == [mention]


words = st.sampled_from(["and", "or", "of the", "breast", "cancer", "/", ",", "-", "C6"])


@given(st.lists(words, max_size=9))
def test_parts_consist_of_words_of_the_mention(words: list[str]) -> None:
    mention = " ".join(words)

    parts = split_composite(mention)

    assert parts == [mention] or len(parts) > 1
    for part in parts:
        assert set(part.split()) <= set(mention.replace(",", " ").split()) or parts == [mention]


@pytest.mark.shared_data
def test_most_real_composites_are_split_as_by_annotators(shared_data: Path) -> None:
    rows = []
    for part in ("train", "dev", "test"):
        path = shared_data / f"benchmarks/ncbi-disease/{part}.tsv.gz"
        with gzip.open(path, "rt", encoding="utf-8") as table:
            rows += list(csv.DictReader(table, delimiter="\t", quoting=csv.QUOTE_NONE))
    coordination = re.compile(r"\b(and|or)\b|/")
    composite = [row for row in rows if "|" in row["mention"] and coordination.search(row["raw_mention"])]
    single = [row for row in rows if "|" not in row["mention"]]

    as_annotated = [
        row for row in composite if len(split_composite(row["raw_mention"])) == row["mention"].count("|") + 1
    ]
    wrongly = [row for row in single if len(split_composite(row["raw_mention"])) > 1]

    assert len(as_annotated) / len(composite) > 0.85
    assert len(wrongly) / len(single) < 0.03
