from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sapbert.curies import PREFIX_SYNONYMS, canonical_prefix, parse_curie

PREFIXES = ["GO", "mesh", "MSH", "Orphanet", "ORPHA", "UMLS_CUI", "omim.ps", "icd-10", "x_1"]


@pytest.mark.parametrize(
    ("text", "curie"),
    [
        ("mesh:D009203", "mesh:D009203"),
        ("MESH:D009203", "mesh:D009203"),
        ("MSH:D009203", "mesh:D009203"),
        ("UMLS_CUI:C0027051", "umls:C0027051"),
        ("SNOMEDCT_US:22298006", "snomedct:22298006"),
        ("OMIMPS:613135", "omim.ps:613135"),
        ("ICD-10-CM:I21", "icd10cm:I21"),
        (" HP:0001658\n", "hp:0001658"),
        ("HP :0001658", "hp:0001658"),
        ("GO:GO:0005634", "go:0005634"),
        ("GO:go:GO:0005634", "go:0005634"),
        ("ORPHA:ORPHA:58", "orphanet:58"),
        ("Orphanet:ORPHA:58", "orphanet:58"),
        ("GO:GOA:1", "go:GOA:1"),
        ("chebi:CHEBI", "chebi:CHEBI"),
        ("ncit:C:1", "ncit:C:1"),
        ("icd10:A00-B99", "icd10:A00-B99"),
        ("invented:two words", "invented:two words"),
        ("invented:é", "invented:é"),
    ],
)
def test_an_identifier_has_one_spelling(text: str, curie: str) -> None:
    assert parse_curie(text) == curie


NO_CURIES = ["", " ", ":", "D009203", "mesh:", "mesh: ", ":D009203", "mesh: D009203", "GO:GO:", "GO:GO: 1"]


@pytest.mark.parametrize("text", [*NO_CURIES, "two words:1", "http//a:1", "_x:1", "é:1", "İ:1"])
def test_text_without_a_prefix_or_local_part_is_not_an_identifier(text: str) -> None:
    assert parse_curie(text) is None


@pytest.mark.parametrize(
    ("text", "prefix", "curie"),
    [
        ("D009203", "mesh", "mesh:D009203"),
        (" D009203 ", "MSH", "mesh:D009203"),
        ("HP:1", "mesh", "hp:1"),
        ("", "mesh", None),
        (" ", "mesh", None),
        (":1", "mesh", None),
        ("D009203", "no prefix", None),
        ("D009203", "a:b", None),
        ("D009203", "", None),
    ],
)
def test_a_default_prefix_is_used_for_identifiers_without_one(
    text: str, prefix: str, curie: str | None
) -> None:
    assert parse_curie(text, prefix=prefix) == curie


def test_a_canonical_prefix_is_unchanged() -> None:
    spellings = [*PREFIX_SYNONYMS, *PREFIX_SYNONYMS.values()]
    assert [s for s in spellings if canonical_prefix(canonical_prefix(s)) != canonical_prefix(s)] == []
    assert [s for s in PREFIX_SYNONYMS if s != s.lower()] == []
    assert canonical_prefix(" MeSH ") == "mesh"


texts = st.one_of(
    st.text(),
    st.lists(st.sampled_from([*PREFIXES, ":", ":", " ", "1", "\x1c", "\n", "é"])).map("".join),
    st.builds("{}:{}".format, st.sampled_from(PREFIXES), st.text()),
)


@given(texts, st.sampled_from([None, *PREFIXES]))
def test_parsing_twice_changes_nothing(text: str, prefix: str | None) -> None:
    curie = parse_curie(text, prefix=prefix)
    if curie is not None:
        assert parse_curie(curie) == curie
        assert parse_curie(curie, prefix="another") == curie


@given(st.sampled_from(PREFIXES), st.text("abcZ019._-", min_size=1))
def test_neither_case_nor_repetition_of_the_prefix_matters(prefix: str, local: str) -> None:
    curie = f"{canonical_prefix(prefix)}:{local}"
    for spelled in (prefix, prefix.upper(), f"{prefix}:{prefix.lower()}", canonical_prefix(prefix)):
        assert parse_curie(f"{spelled}:{local}") == curie
    assert parse_curie(local, prefix=prefix) == curie
