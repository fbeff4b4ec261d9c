from __future__ import annotations

from pathlib import Path

import pytest

from sapbert.annotation.filters import annotation_masks
from sapbert.annotation.settings import AnnotateSettings
from sapbert.index.name_table import NameTable
from sapbert.index.name_table_writer import write_name_table
from tests.index.conftest import write


@pytest.fixture
def table(tmp_path: Path) -> NameTable:
    rows = [
        ("mesh:D1", "Breast", "MSH", "en", "0", "", "0"),
        ("mesh:D2", "Mastitis", "MSH", "en", "0", "", "0"),
        ("mesh:D2", "once", "ES", "es", "0", "translation", "0"),
        ("mesh:D2", "MS", "X", "en", "0", "abbreviation", "0"),
        ("mesh:D3", "MS", "X", "en", "0", "abbreviation", "0"),
        ("mesh:D3", "Neoplasms", "MSH", "en", "0", "", "0"),
        ("mesh:D3", "NPL", "X", "en", "0", "abbreviation", "0"),
    ]
    facts = {"types": [("mesh:D1", "A"), ("mesh:D2", "C")]}
    (tmp_path / "entries").mkdir()
    return write_name_table(write(tmp_path / "vocabulary", rows, facts), tmp_path / "entries")


def names(table: NameTable, settings: AnnotateSettings) -> set[str]:
    rows = annotation_masks(table, settings).rows
    return {table.texts[row] for row in range(len(table)) if rows is None or rows[row]}


def test_translations_shared_abbreviations_and_anatomy_are_left_out_by_default(table: NameTable) -> None:
    assert names(table, AnnotateSettings()) == {"Mastitis", "Neoplasms", "NPL"}


def test_filters_that_are_given_replace_the_defaults(table: NameTable) -> None:
    assert names(table, AnnotateSettings(types=("A",))) == {"Breast"}
    assert names(table, AnnotateSettings(kinds=("translation", "abbreviation"))) == {"once", "MS", "NPL"}
