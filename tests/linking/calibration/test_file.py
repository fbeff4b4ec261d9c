"""The calibration file."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from sapbert.errors import ArtifactError, ConfigError
from sapbert.linking.calibration.file import Calibration
from sapbert.linking.calibration.model import Isotonic, Platt
from sapbert.linking.fusion.ranker import FusionRanker
from sapbert.linking.settings import Method
from tests.linking.fusion.rankers import ranker_of

CALIBRATION = Calibration(
    index="f00d",
    exact=True,
    sparse_weight=0.5,
    method=Method.PLATT,
    curve=Platt(-1.0, 2.0, 3.0),
    threshold=0.25,
    report={"mentions": 3},
)
RANKER: FusionRanker = ranker_of({"edit ratio": 5})


def test_a_calibration_is_read_as_written(tmp_path: Path) -> None:
    CALIBRATION.write(tmp_path / "calibration.json")

    assert Calibration.read_for_index(tmp_path / "calibration.json", index="f00d") == CALIBRATION


def test_confidence_depends_on_best_score_and_margin() -> None:
    sure, *others = CALIBRATION.confidences([0.9, 0.7, 0.1])

    assert sure == pytest.approx(1 / (1 + np.exp(1 - 2 * 0.9 - 3 * 0.2)), abs=1e-6)
    assert others == [None, None]
    assert CALIBRATION.confidences([0.9])[0] == CALIBRATION.confidences([0.9, 0.0])[0]


def test_with_a_ranker_the_other_candidates_share_what_the_best_leaves(tmp_path: Path) -> None:
    ranked = replace(CALIBRATION, ranker=RANKER)
    best, *others = ranked.confidences([0.6, 0.2, 0.1])

    assert best is not None
    assert others == pytest.approx([(1 - best) * 0.2 / 0.4, (1 - best) * 0.1 / 0.4], abs=1e-6)
    assert ranked.confidences([1.0, 0.0])[1] == 0
    ranked.write(tmp_path / "calibration.json")
    stored = Calibration.read(tmp_path / "calibration.json").ranker
    assert stored is not None
    assert stored.fingerprint == RANKER.fingerprint


def test_a_calibration_of_the_first_format_has_no_ranker(tmp_path: Path) -> None:
    CALIBRATION.write(tmp_path / "calibration.json")
    content = json.loads((tmp_path / "calibration.json").read_text())
    del content["ranker"], content["reranker"]
    (tmp_path / "calibration.json").write_text(json.dumps({**content, "format": 1}))

    assert Calibration.read(tmp_path / "calibration.json") == CALIBRATION


def test_a_calibration_of_another_index_is_refused_with_both_named(tmp_path: Path) -> None:
    CALIBRATION.write(tmp_path / "calibration.json")

    with pytest.raises(ArtifactError, match="index f00d, but this index is beef"):
        Calibration.read_for_index(tmp_path / "calibration.json", index="beef")


def test_an_existing_file_is_kept(tmp_path: Path) -> None:
    target = tmp_path / "calibration.json"
    target.write_text("mine")

    with pytest.raises(ArtifactError, match="exists"):
        CALIBRATION.write(target)
    assert target.read_text() == "mine"
    CALIBRATION.write(target, overwrite=True)


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: {},
        lambda content: [],
        lambda content: {**content, "kind": "recipe"},
        lambda content: {**content, "format": 99},
        lambda content: {**content, "method": "magic"},
        lambda content: {**content, "parameters": {}},
        lambda content: {**content, "method": "isotonic", "parameters": {"scores": [1], "values": []}},
        lambda content: {**content, "threshold": "high"},
        lambda content: {**content, "ranker": {"features": []}},
    ],
)
def test_a_damaged_file_is_refused(tmp_path: Path, damage: object) -> None:
    target = tmp_path / "calibration.json"
    CALIBRATION.write(target)
    assert callable(damage)
    target.write_text(json.dumps(damage(json.loads(target.read_text()))))

    with pytest.raises(ArtifactError, match="is not a calibration"):
        Calibration.read_for_index(target, index="f00d")


def test_a_deleted_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match=r"calibration\.json: no such file; write it with `sapbert"):
        Calibration.read(tmp_path / "calibration.json")


@pytest.mark.parametrize("content", [b"", b"not json", b"\xff\xfe"])
def test_a_file_that_is_not_json_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "calibration.json").write_bytes(content)

    with pytest.raises(ArtifactError, match="is not a calibration"):
        Calibration.read_for_index(tmp_path / "calibration.json", index="f00d")


def test_linking_must_use_the_fitted_sparse_weight() -> None:
    assert CALIBRATION.require_sparse_weight(None) == CALIBRATION.require_sparse_weight(0.5) == 0.5
    with pytest.raises(ConfigError, match=r"weight of 0\.5, not 0\.7"):
        CALIBRATION.require_sparse_weight(0.7)


def test_an_isotonic_curve_is_constant_outside_its_range() -> None:
    curve = Isotonic(np.array([0.5, 0.9]), np.array([0.2, 0.8]))

    assert curve.confidence(np.array([0.0, 0.7, 1.0]), np.zeros(3)).tolist() == pytest.approx([0.2, 0.5, 0.8])
