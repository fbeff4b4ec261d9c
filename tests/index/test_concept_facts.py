from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from sapbert.errors import ArtifactError, ConfigError
from sapbert.index.name_table import NameTable
from sapbert.index.name_table_writer import write_name_table
from sapbert.vocab.input_files import InputReader
from sapbert.vocab.vocabulary import Vocabulary
from sapbert.vocab.writer import write_vocabulary
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


def kept(table: NameTable, **filters: list[str]) -> list[str]:
    """The concepts that a filter keeps."""
    selection = table.select(**filters)
    assert selection is not None
    numbers = sorted(set(table.link_concepts[selection.links].tolist()))
    return [table.concepts[number] for number in numbers]


def test_concepts_can_be_limited_to_those_below_another(vocabulary_of: MakeVocabulary, folder: Path) -> None:
    table = write_name_table(vocabulary_of(ROWS, FACTS), folder)
    assert kept(table, within=["X:2"]) == ["x:2", "x:3", "x:4"]
    assert kept(table, within=["x:3", "x:4"]) == ["x:3", "x:4"]
    assert kept(table, exclude=["x:2"]) == ["x:1"]
    assert kept(table, within=["x:1"], exclude=["x:4"]) == ["x:1", "x:2", "x:3"]
    with pytest.raises(ConfigError, match="the index has no concept 'x:9'"):
        table.select(within=["x:9"])


def test_within_an_index_without_parents_is_an_error(vocabulary_of: MakeVocabulary, folder: Path) -> None:
    table = write_name_table(vocabulary_of(ROWS), folder)
    with pytest.raises(ConfigError, match="the index has no parents"):
        table.select(exclude=["x:1"])


def test_a_type_can_be_given_by_its_label(tmp_path: Path, folder: Path) -> None:
    inputs = InputReader()
    with write_vocabulary(tmp_path / "v", {}, inputs) as writer:
        writer.add(pl.DataFrame(ROWS, schema=["concept_id", "name"], orient="row"))
        writer.add_facts("types", pl.DataFrame({"concept_id": ["x:3", "x:4"], "type": ["C", "D"]}))
        writer.type_labels.update({"C": "Diseases", "D": "Drugs", "E": "Techniques"})
    table = write_name_table(Vocabulary.open(tmp_path / "v"), folder)
    assert table.type_labels == {"C": "Diseases", "D": "Drugs"}
    assert kept(table, types=["diseases"]) == kept(table, types=["C"]) == ["x:3"]
    with pytest.raises(ConfigError, match="no type 'Techniques'"):
        table.select(types=["Techniques"])
