"""The script that builds the bundled artifacts."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType

from sapbert.artifacts import load_manifest
from sapbert.vocab.vocabulary import Vocabulary
from tests.conftest import Exported
from tests.defaults.conftest import REPEATED


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
    assert {name.text for name in infarction.names[1:]} == {
        "Infarction, Myocardial", "Heart Attack", "Heart Attacks"
    }  # fmt: skip
    assert diabetes.types == ("C", "D")
    assert vocabulary.type_labels["C"] == "Diseases"


def test_fields_may_be_empty_and_contain_quotes(home: Path) -> None:
    vocabulary = Vocabulary.open(home / "vocabulary")

    assert names_of(vocabulary, "mesh:D005334") == ["Fever"]
    assert names_of(vocabulary, "mesh:D005260") == ["Female", "Females"]
    assert names_of(vocabulary, "mesh:D000011") == ['"Influenza" Virus A']


def test_the_same_table_gives_the_same_vocabulary(
    home: Path, script: ModuleType, mesh: Path, tmp_path: Path
) -> None:
    again = script.build_vocabulary(mesh, tmp_path / "again")

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
        16, "int4", "flat"
    )  # fmt: skip


def test_every_part_has_a_card_and_that_of_the_encoder_is_kept(
    home: Path, script: ModuleType, tiny_export: Exported, tmp_path: Path
) -> None:
    for part, found in {"vocabulary": "6 descriptors", "index": "16 dimensions"}.items():
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
