from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from sapbert.artifacts import create
from sapbert.errors import ArtifactError
from sapbert.vocab.vocabulary import Name, Vocabulary
from tests.vocab.contents import EXAMPLE, Content, NameRow, write


@pytest.fixture
def vocabulary(tmp_path: Path) -> Vocabulary:
    return write(tmp_path / "vocabulary", EXAMPLE)


@pytest.mark.parametrize("id", ["ex:1", "EX:1", " Ex:1 ", "ex:EX:1"])
def test_a_concept_is_found_in_any_spelling_of_its_prefix(vocabulary: Vocabulary, id: str) -> None:
    concept = vocabulary.concept(id)
    assert concept is not None
    assert concept.concept_id == "ex:1"
    assert concept.names == (
        Name("Lunar cough", True, "en", "B", "exact"),
        Name("Mondhusten", True, "de", "B", "exact"),
        Name("Lunacof", False, "en", "C", "related"),
        Name("Moon cough", False, "en", "A", "related"),
    )
    assert concept.preferred_name == "Lunar cough"
    assert (concept.types, concept.xrefs, concept.aliases) == (("T184",), ("mesh:D1",), ())


def test_a_concept_is_found_by_an_alias(vocabulary: Vocabulary) -> None:
    concept = vocabulary.concept("OLD:7")
    assert concept is not None
    assert (concept.concept_id, concept.aliases) == ("ex:2", ("old:7",))


@pytest.mark.parametrize("id", ["ex:9", "old:8", "ex:", "ex", "", "Moon cough", "mesh:D1"])
def test_unknown_ids_and_names_are_not_found(vocabulary: Vocabulary, id: str) -> None:
    assert vocabulary.concept(id) is None


def test_an_id_that_is_also_an_alias_is_its_own_concept(tmp_path: Path) -> None:
    content = Content(EXAMPLE.names, aliases=[("ex:1", "ex:2"), ("ex:1", "MESH:9")])
    concept = write(tmp_path / "v", content).concept("ex:2")
    assert concept is not None
    assert concept.concept_id == "ex:2"


def test_a_concept_whose_id_is_not_canonical_is_found_by_name_and_alias(tmp_path: Path) -> None:
    names: list[NameRow] = [("MESH:D1", "Moon cough", 1, "en", "", "exact")]
    vocabulary = write(tmp_path / "v", Content(names, aliases=[("MESH:D1", "mesh:D1")]))
    concept = vocabulary.concept("mesh:D1")
    assert concept is not None
    assert [concept] == vocabulary.find("moon cough")


def test_concepts_are_found_by_any_spelling_of_a_name(tmp_path: Path) -> None:
    shared = ("ex:7", "LUNAR \u00a0cough", 0, "en", "", "exact")
    street = ("ex:7", "Straße", 0, "de", "", "exact")
    vocabulary = write(tmp_path / "v", Content([*EXAMPLE.names, shared, street]))
    assert [concept.concept_id for concept in vocabulary.find(" lunar\tCOUGH")] == ["ex:1", "ex:7"]
    assert [concept.concept_id for concept in vocabulary.find("STRASSE")] == ["ex:7"]
    assert vocabulary.find("lunar") == []
    assert vocabulary.find("") == []


def test_the_most_frequent_values_are_counted(vocabulary: Vocabulary) -> None:
    assert vocabulary.count_names("language", 5) == {"en": 4, "de": 1}
    assert list(vocabulary.count_names("source", 2).items()) == [("A", 2), ("B", 2)]
    assert vocabulary.count_types(9) == {"T047": 1, "T184": 1}


def test_a_stray_file_is_not_part_of_a_table(vocabulary: Vocabulary) -> None:
    (part,) = vocabulary.parts()
    part.with_name("00001.parquet").write_bytes(part.read_bytes())
    again = Vocabulary.open(vocabulary.path)
    assert again.names.collect().height == 5
    assert again.parts() == [part]


def test_a_damaged_table_is_not_opened(vocabulary: Vocabulary) -> None:
    (part,) = vocabulary.parts("aliases")
    content = part.read_bytes()
    part.write_bytes(content.replace(b"old:7", b"old:9"))
    with pytest.raises(ArtifactError, match=r"aliases/00000\.parquet does not match its checksum"):
        Vocabulary.open(vocabulary.path)
    assert Vocabulary.open(vocabulary.path, verify=False).fingerprint == vocabulary.fingerprint


def test_another_artifact_is_not_opened(tmp_path: Path) -> None:
    with create(tmp_path / "pairs") as draft:
        draft.seal("pairs", settings={}, inputs={}, counts={})
    with pytest.raises(ArtifactError, match="is a folder of pairs, not a vocabulary"):
        Vocabulary.open(tmp_path / "pairs")


def test_a_vocabulary_of_a_version_without_kinds_opens(tmp_path: Path) -> None:
    vocabulary = write(tmp_path / "v", EXAMPLE)
    (part,) = vocabulary.parts()
    pl.read_parquet(part).drop("kind", "count").write_parquet(part)

    older = Vocabulary(vocabulary.path, vocabulary.manifest)

    assert older.names.collect().rows() == [(*row[:6], "", 0) for row in older.names.collect().rows()]
    concept = older.concept("ex:1")
    assert concept is not None
    assert {(name.kind, name.count) for name in concept.names} == {("", 0)}
    assert older.count_names("kind", 5) == {"": 5}
