"""`sapbert calibrate`, and how `sapbert link` uses its result."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest

from sapbert.index.build import build_index
from sapbert.index.settings import IndexSettings
from sapbert.index.sparse import SPARSE
from sapbert.plots import reliability
from tests.cli.conftest import Done, Sapbert, left_in, refused
from tests.index.conftest import NgramEncoder, write
from tests.linking.calibration.test_fit import GOLD
from tests.linking.conftest import ROWS

ENCODER = NgramEncoder(256)


@pytest.fixture(autouse=True)
def trigrams(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace the encoder of the index by one that needs no model."""
    monkeypatch.setattr("sapbert.encoder.open.open_exported", lambda _folder, *, threads: ENCODER)


def build(folder: Path, *, hybrid: bool) -> Path:
    vocabulary = write(folder / "vocabulary", [*ROWS, ("hp:3", "Ear and nose pain", "HPO")])
    build_index(vocabulary, ENCODER, folder / "index", IndexSettings(hybrid=hybrid))
    return folder / "index"


@pytest.fixture
def index(tmp_path: Path) -> Path:
    return build(tmp_path / "hybrid", hybrid=True)


@pytest.fixture
def mentions(tmp_path: Path) -> Path:
    lines = [f"{text} {number}\t{concept}" for text, concept in GOLD.items() for number in range(12)]
    lines += [f"unheard of {number}\tmesh:D404" for number in range(20)]
    path = tmp_path / "mentions.tsv"
    path.write_text("\n".join(["mention\tconcept_ids", *lines]) + "\n")
    return path


def rows(done: Done) -> list[dict[str, Any]]:
    assert done.code == 0, done.err
    return list(csv.DictReader(io.StringIO(done.out)))


def test_an_index_is_calibrated_and_links_with_confidence(
    sapbert: Sapbert, index: Path, mentions: Path, tmp_path: Path
) -> None:
    out = tmp_path / "calibration.json"

    done = sapbert("calibrate", index, mentions, "-o", out, "--precision", 0.9, "--json")

    assert done.code == 0
    report = json.loads(done.out)
    assert report["mentions"] == len(GOLD) * 12 + 20
    assert report["chosen"]["precision"] >= 0.9
    for words in ("calibration ->", "sparse weight", "NIL", "Brier score", "confidence from"):
        assert words in done.err
    best, *others = rows(sapbert("link", "--index", index, "heart attack 3", "--calibration", out))
    assert 0 < float(best["confidence"]) <= 1
    assert {row["confidence"] for row in others} <= {""}
    [nothing] = rows(sapbert("link", "--index", index, "unheard of", "--calibration", out))
    assert nothing["concept_id"] == "NIL"


def test_sparse_weight_sets_the_weight_of_the_ngram_score(sapbert: Sapbert, index: Path) -> None:
    plain, hybrid = (
        rows(sapbert("link", "--index", index, "hart atack", "-k", 1, *options))[0]
        for options in ((), ("--sparse-weight", 1))
    )

    assert (plain["matched_by"], hybrid["matched_by"]) == ("dense", "hybrid")
    assert plain["score"] != hybrid["score"]


def test_sparse_weight_needs_a_hybrid_index(sapbert: Sapbert, tmp_path: Path) -> None:
    index = build(tmp_path / "dense", hybrid=False)
    assert SPARSE not in left_in(index)

    assert "sapbert index --hybrid" in refused(
        sapbert("link", "--index", index, "cold", "--sparse-weight", 1)
    )


def test_a_dense_index_is_calibrated_too(sapbert: Sapbert, mentions: Path, tmp_path: Path) -> None:
    index = build(tmp_path / "dense", hybrid=False)

    assert sapbert("calibrate", index, mentions, "-o", tmp_path / "calibration.json").code == 0
    assert json.loads((tmp_path / "calibration.json").read_text())["sparse_weight"] == 0


def test_the_calibration_of_another_index_is_refused(
    sapbert: Sapbert, index: Path, mentions: Path, tmp_path: Path
) -> None:
    out = tmp_path / "calibration.json"
    sapbert("calibrate", index, mentions, "-o", out)
    other = build(tmp_path / "dense", hybrid=False)

    assert "was fitted on the index" in refused(
        sapbert("link", "--index", other, "cold", "--calibration", out)
    )


def test_a_figure_is_drawn(sapbert: Sapbert, index: Path, mentions: Path, tmp_path: Path) -> None:
    out, figure = tmp_path / "calibration.json", tmp_path / "reliability.svg"

    assert sapbert("calibrate", index, mentions, "-o", out, "--figure", figure).code == 0

    drawn = figure.read_text()
    assert "<svg" in drawn
    report = json.loads(out.read_text())["report"]
    reliability.draw_reliability({"dev": report}, tmp_path / "again.png")
    assert (tmp_path / "again.png").stat().st_size > 1000


def test_an_unusable_figure_path_is_refused_before_any_work(
    sapbert: Sapbert, index: Path, mentions: Path, tmp_path: Path
) -> None:
    out = tmp_path / "calibration.json"

    assert "a figure must be" in refused(
        sapbert("calibrate", index, mentions, "-o", out, "--figure", "f.txt")
    )
    assert not out.exists()


def test_ids_without_a_prefix_get_a_hint(sapbert: Sapbert, index: Path, tmp_path: Path) -> None:
    table = tmp_path / "mentions.tsv"
    table.write_text("mention\tconcept_ids\nheart\t12\n")

    line = refused(sapbert("calibrate", index, table, "-o", tmp_path / "calibration.json"))
    assert "--prefix" in line


def test_composite_mentions_are_split_and_shown_unless_they_are_names(sapbert: Sapbert, index: Path) -> None:
    done = sapbert(
        "link", "--index", index, "heart and chest pain", "ear and nose pain", "--split-composites", "-k", 1
    )

    assert [(row["mention"], row["part"], row["concept_id"]) for row in rows(done)][1:] == [
        ("heart and chest pain", "chest pain", "hp:2"),
        ("ear and nose pain", "ear and nose pain", "hp:3"),
    ]


def test_abbreviations_of_a_document_are_expanded_and_shown(
    sapbert: Sapbert, index: Path, tmp_path: Path
) -> None:
    table = tmp_path / "mentions.csv"
    table.write_text("mention,text\nMI,a myocardial infarction (MI)\nMI,\n")

    done = sapbert("link", "--index", index, "--file", table, "--document-column", "text", "-k", 1)

    first, second = rows(done)
    assert (first["expanded"], first["concept_id"], first["matched_by"]) == (
        "myocardial infarction",
        "mesh:D1",
        "exact",
    )
    assert second["expanded"] == "MI"
