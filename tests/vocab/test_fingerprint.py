from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

from sapbert.vocab.input_files import InputReader
from sapbert.vocab.vocabulary import Vocabulary
from sapbert.vocab.writer import write_vocabulary
from tests.vocab.contents import EXAMPLE, Content, NameRow, add, name_frame, write


def replaced(rows: list[NameRow], at: int, column: int, value: object) -> list[NameRow]:
    row = list(rows[at])
    row[column] = value
    return [*rows[:at], tuple(row), *rows[at + 1 :]]  # type: ignore[list-item]  # of the same types


CHANGES: dict[str, Callable[[Content], Content]] = {
    "a name": lambda c: Content(replaced(c.names, 0, 1, "Glimmer fevers"), c.late, **c.facts()),
    "the case of a name": lambda c: Content(replaced(c.names, 1, 1, "moon cough"), c.late, **c.facts()),
    "a flag": lambda c: Content(replaced(c.names, 1, 2, 3), c.late, **c.facts()),
    "a language": lambda c: Content(replaced(c.names, 3, 3, "nl"), c.late, **c.facts()),
    "a source": lambda c: Content(replaced(c.names, 1, 4, "B"), c.late, **c.facts()),
    "a scope": lambda c: Content(replaced(c.names, 1, 5, "narrow"), c.late, **c.facts()),
    "a concept": lambda c: Content(replaced(c.names, 1, 0, "ex:3"), c.late, **c.facts()),
    "a name less": lambda c: Content(c.names[:3], c.late, **c.facts()),
    "a late name less": lambda c: Content(c.names, [], **c.facts()),
    "a type": lambda c: Content(c.names, c.late, [("ex:1", "T047")], c.xrefs, c.aliases),
    "an xref": lambda c: Content(c.names, c.late, c.types, [("ex:2", "mesh:D1")], c.aliases),
    "an alias": lambda c: Content(c.names, c.late, c.types, c.xrefs, [("ex:2", "old:77")]),
    "a parent": lambda c: replace(c, parents=[("ex:1", "ex:2", "is_a")]),
    "the relation to a parent": lambda c: replace(c, parents=[("ex:1", "ex:2", "part_of")]),
    "a definition": lambda c: replace(c, definitions=[("ex:1", "A cough.", "en", "A")]),
    "the language of a definition": lambda c: replace(c, definitions=[("ex:1", "A cough.", "de", "A")]),
    "a fact of another table": lambda c: Content(c.names, c.late, c.types, c.aliases, c.xrefs),
}


@pytest.mark.parametrize("change", CHANGES)
def test_the_fingerprint_changes_with_anything_in_the_tables(tmp_path: Path, change: str) -> None:
    one, other = write(tmp_path / "one", EXAMPLE), write(tmp_path / "other", CHANGES[change](EXAMPLE))
    assert one.fingerprint != other.fingerprint


def test_names_with_equal_concatenation_have_different_fingerprints(tmp_path: Path) -> None:
    fingerprints = {
        write(
            tmp_path / str(number), Content([("ex:1", name, 0, "en", "", "exact") for name in names])
        ).fingerprint
        for number, names in enumerate([["ab", "c"], ["a", "bc"], ["abc"], ["a", "b", "c"]])
    }
    assert len(fingerprints) == 4


def test_the_fingerprint_does_not_depend_on_settings_path_or_skipped_rows(tmp_path: Path) -> None:
    one = write(tmp_path / "one", EXAMPLE)
    with write_vocabulary(tmp_path / "other", {"told": 1}, InputReader(skipped_rows=1)) as writer:
        writer.count("something", 1)
        add(writer, EXAMPLE)
        writer.add(name_frame([("ex:5", " ", 1, "en", "", "exact")]))
        writer.add_late(name_frame([("ex:6", "late", 1, "en", "", "exact")]))
    assert Vocabulary.open(tmp_path / "other").fingerprint == one.fingerprint


def test_the_fingerprint_of_given_content_never_changes(tmp_path: Path) -> None:
    """If this must change, other artifacts no longer match theirs: raise `artifacts.FORMAT` too."""
    assert write(tmp_path / "v", EXAMPLE).fingerprint == "096ff022d7cd55f909486ffb0ee6d38c"


@pytest.mark.parametrize("added", [{"kind": "brand"}, {"count": 3}])
def test_a_kind_and_a_count_change_the_fingerprint(tmp_path: Path, added: dict[str, object]) -> None:
    def written(name: str, columns: dict[str, object]) -> str:
        with write_vocabulary(tmp_path / name, {}, InputReader()) as writer:
            writer.add(pl.DataFrame({"concept_id": ["ex:1"], "name": ["Lunacof"], **columns}))
        return Vocabulary.open(tmp_path / name).fingerprint

    assert written("with", added) != written("without", {})
    assert written("empty", {"kind": "", "count": 0}) == written("again", {})
