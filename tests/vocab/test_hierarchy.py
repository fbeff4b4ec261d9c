from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from sapbert.errors import SapbertError
from sapbert.vocab.vocabulary import Definition, Vocabulary
from tests.vocab.contents import EXAMPLE, Content, write


def named(*ids: str) -> Content:
    return Content([(curie, f"name of {curie}", 1, "en", "ex", "exact") for curie in ids])


def family() -> Content:
    return replace(
        named("ex:1", "ex:2", "ex:3", "ex:4", "ex:5"),
        aliases=[("ex:1", "ex:old")],
        parents=[
            ("ex:3", "ex:2", "is_a"),
            ("ex:3", "ex:9", "is_a"),
            ("ex:3", "ex:9", "is_a"),
            ("ex:2", "ex:old", "part_of"),
            ("ex:2", "ex:old", "part_of"),
            ("ex:4", "ex:4", "is_a"),
        ],
        definitions=[("ex:3", "Zuletzt.", "de", "ex"), ("ex:3", "The last one.", "en", "ex")],
    )


def test_parents_children_and_ancestors_are_found_by_id_or_alias(tmp_path: Path) -> None:
    vocabulary = write(tmp_path / "v", family())
    assert vocabulary.parents("EX:3") == ("ex:2",)
    assert vocabulary.ancestors("ex:3") == ("ex:2", "ex:1")
    assert vocabulary.children("ex:old") == ("ex:2",)
    assert vocabulary.descendants("ex:1") == ("ex:2", "ex:3")
    assert vocabulary.parents("ex:5") == ()
    with pytest.raises(SapbertError, match="has no concept 'ex:6'"):
        vocabulary.parents("ex:6")


def test_parents_are_kept_as_in_the_source_and_what_is_unusual_is_counted(tmp_path: Path) -> None:
    vocabulary = write(tmp_path / "v", family())
    assert vocabulary.parent_links.collect().rows() == [
        ("ex:2", "ex:old", "part_of"),
        ("ex:3", "ex:2", "is_a"),
        ("ex:3", "ex:9", "is_a"),
        ("ex:4", "ex:4", "is_a"),
    ]
    counts = vocabulary.manifest.counts
    assert counts["parents"] == 4
    assert counts["roots"] == 1
    assert counts["concepts without parents and children"] == 2
    assert counts["parents that are not in the vocabulary"] == 1
    assert counts["concepts in cycles of parents"] == 0


def test_a_concept_has_its_parents_and_definitions_english_first(tmp_path: Path) -> None:
    concept = write(tmp_path / "v", family()).concept("ex:3")
    assert concept is not None
    assert concept.parents == ("ex:2", "ex:9")
    assert concept.definition == "The last one."
    assert concept.definitions[1] == Definition("Zuletzt.", "de", "ex")


def test_a_vocabulary_without_parents_opens_and_has_none(tmp_path: Path) -> None:
    vocabulary = write(tmp_path / "v", EXAMPLE)
    assert vocabulary.ancestors("ex:1") == ()
    assert "parents" not in vocabulary.manifest.counts
    concept = Vocabulary.open(tmp_path / "v").concept("ex:1")
    assert concept is not None
    assert (concept.parents, concept.definition) == ((), None)
