"""The script that builds the bundled artifacts."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType

from sapbert.artifacts import load_manifest
from sapbert.vocab.vocabulary import Vocabulary
from tests.conftest import Exported
from tests.defaults.conftest import REPEATED, build_vocabulary


def names_of(vocabulary: Vocabulary, curie: str) -> list[str]:
    concept = vocabulary.concept(curie)
    assert concept is not None
    return [name.text for name in concept.names]


def test_descriptors_have_their_entry_terms_and_the_letters_of_their_trees(home: Path) -> None:
    vocabulary = Vocabulary.open(home / "vocabulary")

    infarction, diabetes = vocabulary.concept("mesh:D009203"), vocabulary.concept("mesh:D003924")
    assert infarction is not None
    assert diabetes is not None
    assert (infarction.preferred_name, infarction.types) == ("Myocardial Infarction", ("C",))
    assert diabetes.types == ("C", "D")
    assert vocabulary.type_labels["C"] == "Diseases"


def test_fields_may_be_empty_and_contain_quotes(home: Path) -> None:
    vocabulary = Vocabulary.open(home / "vocabulary")

    assert names_of(vocabulary, "mesh:D005260") == ["Female", "Females"]
    assert names_of(vocabulary, "mesh:D000011") == ['"Influenza" Virus A']


def kinds_of(vocabulary: Vocabulary, curie: str) -> dict[str, str]:
    concept = vocabulary.concept(curie)
    assert concept is not None
    return {name.text: name.kind for name in concept.names}


def test_names_of_other_sources_have_a_kind_and_join_by_cross_reference_or_equal_name(home: Path) -> None:
    vocabulary = Vocabulary.open(home / "vocabulary")

    infarction = kinds_of(vocabulary, "mesh:D009203")
    assert {name for name, kind in infarction.items() if not kind} == {
        "Myocardial Infarction", "Infarction, Myocardial", "Heart Attack", "Heart Attacks"
    }  # fmt: skip
    assert infarction["coronary event"] == "synonym"
    assert infarction["MI"] == infarction["HA"] == "abbreviation"
    assert infarction["Infarto de miocardio"] == infarction["Ataque al corazón"] == "translation"
    assert kinds_of(vocabulary, "mesh:D005334") == {
        "Fever": "", "Fieber": "translation", "MI": "abbreviation", "burning up": "lay", "pyrexia": "synonym"
    }  # fmt: skip
    assert kinds_of(vocabulary, "mesh:C2") == {"zetamine": "", "Zetanix": "brand", "Zetaminum": "synonym"}


def test_a_name_that_mesh_gives_to_another_concept_is_not_added(home: Path) -> None:
    vocabulary = Vocabulary.open(home / "vocabulary")
    assert [concept.concept_id for concept in vocabulary.find("fever")] == ["mesh:D005334"]


def test_a_name_belongs_to_the_concept_of_the_first_source_that_has_it(home: Path) -> None:
    vocabulary = Vocabulary.open(home / "vocabulary")
    # HPO has it too, for another concept than the lexicon.
    assert [concept.concept_id for concept in vocabulary.find("burning up")] == ["mesh:D005334"]


def test_only_supplementary_records_that_are_drugs_or_diseases_are_included(home: Path) -> None:
    vocabulary = Vocabulary.open(home / "vocabulary")
    drug, disease = vocabulary.concept("mesh:C2"), vocabulary.concept("mesh:C1")
    assert drug is not None
    assert disease is not None
    assert (drug.types, disease.types) == (("D",), ("C",))
    assert vocabulary.concept("mesh:C3") is None


def test_the_counts_of_a_short_form_order_its_meanings(home: Path) -> None:
    names = Vocabulary.open(home / "vocabulary").names.filter(name="MI").collect()
    counts = dict(zip(names["concept_id"], names["count"], strict=True))
    # The lexicon's first meaning; two sources and two definitions.
    assert counts == {"mesh:D005334": 10_000 + 2, "mesh:D009203": 2 * 3}


def test_short_forms_from_sources_that_may_not_be_passed_on_are_left_out(home: Path) -> None:
    assert not Vocabulary.open(home / "vocabulary").find("HT")


def test_a_translated_label_is_preferred_in_its_language(home: Path) -> None:
    names = Vocabulary.open(home / "vocabulary").names.filter(language="es", preferred=True).collect()
    assert names["name"].to_list() == ["Infarto de miocardio"]


def test_parents_are_those_of_the_trees(home: Path) -> None:
    parents = Vocabulary.open(home / "vocabulary").table("parents").collect()
    assert parents.rows() == [("mesh:D005334", "mesh:D009203", "broader")]


def test_the_same_tables_give_the_same_vocabulary(
    home: Path, vocabulary_script: ModuleType, tables: Path, tmp_path: Path
) -> None:
    again = build_vocabulary(vocabulary_script, tables, tmp_path / "again")

    first = load_manifest(home / "vocabulary")
    assert (again.fingerprint, again.files) == (first.fingerprint, first.files)


def test_only_int8_weights_are_bundled_and_the_index_contains_no_encoder(home: Path) -> None:
    encoder, index = load_manifest(home / "encoder"), load_manifest(home / "index")

    assert [name for name in encoder.files if name.startswith("onnx/")] == [
        "onnx/model_int8.onnx", "onnx/model_int8.onnx.data"
    ]  # fmt: skip
    assert not (home / "index" / "encoder").exists()
    assert index.inputs["vocabulary"]["fingerprint"] == load_manifest(home / "vocabulary").fingerprint
    assert (index.details["dimension"], index.details["precision"], index.details["kind"]) == (
        16, "int4", "signs"
    )  # fmt: skip


def test_every_part_has_a_card_and_that_of_the_encoder_is_kept(
    home: Path, script: ModuleType, tiny_export: Exported, tmp_path: Path
) -> None:
    for part, found in {"vocabulary": "8 concepts", "index": "16 dimensions"}.items():
        assert found in (home / part / "README.md").read_text()

    script.build_encoder(tiny_export.encoder, tmp_path / "encoder")
    (tmp_path / "encoder" / "README.md").write_text("what it is")
    script.build_encoder(tiny_export.encoder, tmp_path / "encoder")

    assert (tmp_path / "encoder" / "README.md").read_text() == "what it is"


def test_confidence_was_fitted_on_all_labelled_mentions(home: Path) -> None:
    calibration = json.loads((home / "calibration.json").read_text())

    assert calibration["index"] == load_manifest(home / "index").fingerprint
    assert calibration["report"]["mentions"] == 7 * REPEATED
    assert calibration["report"]["mentions without a concept of the index"] == REPEATED
