from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from sapbert.errors import ArtifactError
from sapbert.index.name_table import NameTable
from sapbert.index.name_table_writer import write_name_table
from tests.index.conftest import MakeVocabulary

ROWS = [("x:1", "Disease"), ("x:2", "Infection"), ("x:3", "Cold"), ("x:4", "Flu")]
FACTS = {
    "parents": [
        ("x:2", "x:1", "is_a"),
        ("x:3", "x:2", "is_a"),
        ("x:4", "x:2", "is_a"),
        ("x:4", "x:9", "is_a"),
    ],
    "definitions": [
        ("x:3", "Erkältung.", "de", "A"),
        ("x:3", "A cold, second.", "en", "B"),
        ("x:3", "A cold, first.", "en", "A"),
    ],
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "entries").mkdir()
    return tmp_path / "entries"


def test_the_index_has_the_parents_and_one_definition_of_each_concept(
    vocabulary_of: MakeVocabulary, folder: Path
) -> None:
    table = write_name_table(vocabulary_of(ROWS, FACTS), folder)
    assert table.hierarchy.ancestors(3) == [1, 0]
    assert table.hierarchy.children(1) == [2, 3]
    assert table.definitions is not None
    assert table.definitions.span(0, 4) == ["", "", "A cold, first.", ""]


def test_an_index_without_these_files_opens(vocabulary_of: MakeVocabulary, folder: Path) -> None:
    write_name_table(vocabulary_of(ROWS), folder)
    assert not list(folder.glob("parent*"))
    table = NameTable.open(folder)
    assert table.hierarchy.ancestors(3) == []
    assert table.definitions is None


def test_a_parent_outside_the_index_is_damage(vocabulary_of: MakeVocabulary, folder: Path) -> None:
    write_name_table(vocabulary_of(ROWS, FACTS), folder)
    np.save(folder / "parent_numbers.npy", np.array([0, 1, 4], np.int32))
    with pytest.raises(ArtifactError, match="parent_numbers"):
        NameTable.open(folder)
