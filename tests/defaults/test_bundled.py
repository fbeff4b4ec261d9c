"""The real bundled artifacts; skipped in a checkout without weights."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import sapbert.defaults
from sapbert.artifacts import load_manifest
from sapbert.defaults import CALIBRATION, VARIABLE
from sapbert.encoder.onnx import OnnxEncoder
from sapbert.linking.linker import Linker
from sapbert.linking.settings import LinkSettings
from sapbert.vocab.vocabulary import Vocabulary

HERE = Path(sapbert.defaults.__file__).parent
MAX_BYTES = 95e6
"""Of all bundled files together."""
pytestmark = pytest.mark.skipif(not (HERE / "index").is_dir(), reason="no weights in this checkout")


@pytest.fixture(autouse=True)
def shipped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)


@pytest.fixture(scope="module")
def linker() -> Linker:
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv(VARIABLE, raising=False)
        return Linker.open(threads=1)


PARTS = {"encoder": "encoder", "open-mini": "encoder", "vocabulary": "vocabulary", "index": "index"}
"""Folder → kind of artifact."""


@pytest.mark.parametrize("part", PARTS)
def test_each_part_is_complete_and_has_a_card(part: str) -> None:
    load_manifest(HERE / part, kind=PARTS[part])

    assert (HERE / part / "README.md").read_text().startswith(("#", "---"))


def test_all_parts_together_are_small() -> None:
    assert sum(file.stat().st_size for part in PARTS for file in (HERE / part).rglob("*")) <= MAX_BYTES


def test_the_vocabulary_is_mesh() -> None:
    vocabulary = Vocabulary.open(HERE / "vocabulary")

    assert vocabulary.manifest.counts["concepts"] > 30_000
    assert vocabulary.manifest.counts["names"] > 160_000
    concept = vocabulary.concept("mesh:D009203")
    assert concept is not None
    assert (concept.preferred_name, concept.types) == ("Myocardial Infarction", ("C",))


@pytest.mark.parametrize(
    ("mention", "concept"),
    [
        ("Heart attack", "mesh:D009203"),
        ("infarction, myocardial", "mesh:D009203"),
        ("type II diabetes mellitus", "mesh:D003924"),
        ("breast cancer", "mesh:D001943"),
        ("hydroxychloroquine", "mesh:D006886"),
        ("HCQ", "mesh:D006886"),
        ("Plaquenil", "mesh:D006886"),
        ("Hidroxicloroquina", "mesh:D006886"),
        ("diabetis", "mesh:D003920"),
        ("heart atack", "mesh:D009203"),
        ("Herzinfarkt", "mesh:D009203"),
        ("инфаркт миокарда", "mesh:D009203"),
    ],
)
def test_everyday_mentions_are_linked(linker: Linker, mention: str, concept: str) -> None:
    [[best, *_]] = linker.link([mention])

    assert best.concept_id == concept
    assert best.confidence is not None
    assert best.confidence > 0.5


def test_an_ambiguous_abbreviation_lists_its_meanings_by_frequency(linker: Linker) -> None:
    [[best, second, *_]] = linker.link(["RA"])

    assert best.concept_id == "mesh:D001172"
    assert best.name_kind == second.name_kind == "abbreviation"


def test_types_filter_by_tree(linker: Linker) -> None:
    [found] = linker.link(["aspirin"], k=3, settings=LinkSettings(types=("C",)))

    assert len(found) == 3
    assert "mesh:D001241" not in {candidate.concept_id for candidate in found}


def test_uncertain_mentions_still_get_a_candidate() -> None:
    calibration = (HERE / CALIBRATION).read_text()

    assert '"threshold": null' in calibration


def test_the_transformer_can_be_exported_to_weights(tmp_path: Path) -> None:
    from sapbert.encoder.onnx_export.restore import restore_model
    from sapbert.encoder.transformer import TransformerEncoder

    restore_model(HERE / "open-mini", tmp_path / "model")

    names = Vocabulary.open(HERE / "vocabulary").names.head(200).collect()["name"].to_list()
    before = OnnxEncoder.open(HERE / "open-mini", threads=1).encode(names)
    after = TransformerEncoder.open(tmp_path / "model", device="cpu").encode(names)
    cosines = (before * after).sum(axis=1)
    assert np.mean(cosines) > 0.995
    assert cosines.min() > 0.98
