"""The lexicon `data/everyday-names.tsv`: every name is one MeSH concept, no variant contradicts MeSH."""

from __future__ import annotations

from collections import Counter, defaultdict
from pathlib import Path
from typing import NamedTuple

import polars as pl
import pytest

from sapbert.text import fold, tidy

LEXICON = Path(__file__).parents[1] / "data" / "everyday-names.tsv"
MESH = ("mesh_descriptors.tsv.gz", "mesh_supplementary.tsv.gz")
LANGUAGES = {"ar", "cs", "de", "es", "fi", "fr", "it", "ja", "ko"} | {
    "nl",
    "pl",
    "pt",
    "ru",
    "sv",
    "th",
    "tr",
    "uk",
    "zh",
}
FEWEST_BY_KIND = {"abbreviation": 800, "brand": 600, "lay": 800, "translation": 1600}


class Row(NamedTuple):
    name: str
    variant: str
    kind: str
    lang: str
    rank: int


def rows() -> list[Row]:
    header, *lines = LEXICON.read_bytes().decode("utf-8").removesuffix("\n").split("\n")
    assert header.split("\t") == list(Row._fields)
    cells = [line.split("\t") for line in lines]
    return [Row(name, variant, kind, lang, int(rank)) for name, variant, kind, lang, rank in cells]


@pytest.fixture(scope="module")
def mesh(shared_data: Path) -> dict[str, dict[str, bool]]:
    """The MeSH concepts of names and lay variants, and whether the name is their preferred one."""
    table = rows()
    wanted = {row.name.lower() for row in table} | {row.variant.lower() for row in table if row.kind == "lay"}
    concepts: dict[str, dict[str, bool]] = defaultdict(dict)
    for file in MESH:
        columns = ["concept_id", "name", "is_preferred"]
        names = pl.read_csv(
            shared_data / "vocabularies" / file, separator="\t", quote_char=None, columns=columns
        )
        names = names.with_columns(pl.col("name").str.to_lowercase()).filter(
            pl.col("name").is_in(list(wanted))
        )
        for concept, name, preferred in names.select(columns).iter_rows():
            concepts[name][concept] = concepts[name].get(concept, False) or preferred == 1
    return concepts


def test_rows_are_tidy_sorted_and_of_a_known_kind_and_language() -> None:
    table = rows()
    assert table == sorted(table)
    assert [row for row in table if tidy(row.name) != row.name or tidy(row.variant) != row.variant] == []
    assert {row.kind for row in table} == FEWEST_BY_KIND.keys()
    assert {row.lang for row in table if row.kind == "translation"} == LANGUAGES
    assert {row.lang for row in table if row.kind != "translation"} == {"en", ""}


def test_each_kind_and_each_language_has_enough_names() -> None:
    kinds = Counter(row.kind for row in rows())
    languages = Counter(lang for lang, _ in {(row.lang, row.name) for row in rows()})
    assert {kind: count for kind, count in kinds.items() if count < FEWEST_BY_KIND[kind]} == {}
    assert {lang: languages[lang] for lang in LANGUAGES if languages[lang] < 80} == {}


def test_only_an_abbreviation_has_several_meanings_and_they_are_ranked_from_one() -> None:
    ranks: dict[tuple[str, str, str], list[int]] = defaultdict(list)
    for row in rows():
        variant = row.variant if row.kind == "abbreviation" else fold(row.variant)
        ranks[row.kind, row.lang, variant].append(row.rank)
    assert {
        key: found for key, found in ranks.items() if sorted(found) != list(range(1, len(found) + 1))
    } == {}
    assert [key for key, found in ranks.items() if len(found) > 1 and key[0] != "abbreviation"] == []


def is_descriptor(concept_id: str) -> bool:
    return concept_id.startswith("D")


@pytest.mark.shared_data
def test_every_name_is_the_preferred_name_of_one_mesh_concept(mesh: dict[str, dict[str, bool]]) -> None:
    names = {row.name for row in rows()}
    assert [name for name in names if sum(mesh.get(name.lower(), {}).values()) != 1] == []


@pytest.mark.shared_data
def test_no_lay_name_is_a_name_of_another_mesh_descriptor(mesh: dict[str, dict[str, bool]]) -> None:
    lay = [(row.name.lower(), row.variant.lower()) for row in rows() if row.kind == "lay"]
    known = [(name, variant) for name, variant in lay if any(map(is_descriptor, mesh.get(variant, ())))]
    assert known
    assert [(name, variant) for name, variant in known if not mesh[name].keys() & mesh[variant].keys()] == []
