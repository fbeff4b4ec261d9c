from __future__ import annotations

import pytest

from sapbert.errors import ConfigError
from sapbert.evaluation.metrics import KS
from sapbert.paper.published import BENCHMARKS, SOTA, paper_tables

TABLES = paper_tables()
OF_ACCURACY = ("table1", "table2", "table4", "table6")


def test_the_tables_are_as_large_as_the_papers() -> None:
    assert {name: len(table.rows) for name, table in TABLES.items()} == {
        "table1": 20,
        "table2": 2,
        "table3": 7,
        "table4": 11,
        "table6": 7,
        "table7": 3,
    }
    assert TABLES["table1"].title.startswith("Table 1, page 4: ")


def test_a_printed_figure_is_a_share() -> None:
    table = TABLES["table1"]

    assert table.accuracy("PubMedBERT + SapBERT", "ncbi-disease", 1) == pytest.approx(0.92)
    assert table.accuracy("PubMedBERT + SapBERT, fine-tuned", "cometa", 5) == pytest.approx(0.855)
    assert table.accuracy("BioSyn + SapBERT", "ncbi-disease", 1) == pytest.approx(0.925)
    assert table.accuracy("BioSyn", "medmentions", 1) is None
    assert table.accuracy(SOTA, "askapatient", 5) is None
    assert table.accuracy(SOTA, "cometa-zeroshot", 1) is None


@pytest.mark.parametrize("name", OF_ACCURACY)
def test_columns_are_sets_and_more_candidates_are_never_worse(name: str) -> None:
    table = TABLES[name]

    assert set(table.columns) <= set(BENCHMARKS) == set(TABLES["table3"].rows)
    printed = 0
    for row in table.rows:
        for column in table.columns:
            first, fifth = (table.accuracy(row, column, k) for k in KS)
            printed += first is not None
            assert first is None or 0.2 < first <= (fifth or 1) <= 1
    assert printed > 1


@pytest.mark.parametrize("name", TABLES)
def test_every_row_is_found_by_each_of_its_names(name: str) -> None:
    table = TABLES[name]

    assert {row: table.find(row) for row in table.rows} == {row: row for row in table.rows}
    assert {alias: table.find(alias) for alias in table.aliases} == table.aliases


def test_a_row_is_found_whatever_its_spelling() -> None:
    assert TABLES["table1"].find("pubmedbert+sapbert") == "PubMedBERT + SapBERT"
    assert TABLES["table1"].find("sapbert") == "PubMedBERT + SapBERT"
    assert TABLES["table1"].find("minilm") is None
    assert TABLES["table6"].row("INFO-NCE") == "InfoNCE"
    with pytest.raises(ConfigError, match="no row 'hinge', only: cosine; max-margin triplet;"):
        TABLES["table6"].row("hinge")
