"""`sapbert flash`, and the commands that use its encoder."""

from __future__ import annotations

from pathlib import Path

import pytest

from sapbert.artifacts import load_manifest
from tests.cli.conftest import EXAMPLE, Sapbert, refused
from tests.training.conftest import one_thread as one_thread

SMALL = ("--feature", "word=9", "--feature", "characters-4=10", "--dimension", 16, "--batch-size", 32)
SHORT = (*SMALL, "--steps", 20, "--bits", 8)


@pytest.fixture
def pairs(sapbert: Sapbert, tmp_path: Path) -> Path:
    assert sapbert("read", "table", EXAMPLE, "-o", tmp_path / "vocabulary").code == 0
    assert sapbert("pairs", tmp_path / "vocabulary", "-o", tmp_path / "pairs").code == 0
    return tmp_path / "pairs"


def test_an_encoder_is_trained_shown_continued_and_used(
    sapbert: Sapbert, pairs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SAPBERT_HOME", str(tmp_path / "home"))
    flash, again, index = (tmp_path / name for name in ("flash", "again", "index"))
    done = sapbert("flash", pairs, *SHORT, "-o", flash)
    assert (done.code, done.out) == (0, "")
    assert "of held-out synonyms found" in done.err
    assert f"model -> {flash}" in done.err
    assert load_manifest(flash, kind="encoder").settings["features"][1] == {
        "kind": "characters",
        "bits": 10,
        "length": 4,
    }
    assert "used rows" in sapbert("show", flash).out

    assert "is a flash encoder" in refused(sapbert("export", flash, "-o", tmp_path / "onnx"))
    static = sapbert("export", flash, "--format", "static", "--pairs", pairs, "-o", tmp_path / "static")
    assert static.code == 0, static.err
    assert (tmp_path / "static" / "modules.json").is_file()

    short = ("--steps", 2, "--batch-size", 32)
    taught = sapbert("flash", pairs, "--base", flash, "--teacher", flash, *short, "-o", again)
    assert taught.code == 0, taught.err
    assert list(load_manifest(again).inputs) == ["pairs", "base", "teacher"]

    assert sapbert("index", tmp_path / "vocabulary", "--model", flash, "-o", index).code == 0
    linked = sapbert("link", "--index", index, "myocardial infarctions", "-k", 1)
    assert "mesh:D009203" in linked.out


def test_wrong_options_are_refused_in_one_line(sapbert: Sapbert, pairs: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert "words=9" in refused(sapbert("flash", pairs, "--feature", "words=9", "-o", out))
    assert "no such folder" in refused(sapbert("flash", pairs, "--base", tmp_path / "none", "-o", out))
    assert "is not a flash encoder" in refused(sapbert("flash", pairs, "--base", pairs, "-o", out))
    assert "8, 4 or 2" in refused(sapbert("flash", pairs, "--bits", 3, "-o", out))
    assert "needs --pairs" in refused(sapbert("export", out, "--format", "static", "-o", out))
    assert "is an input" in refused(sapbert("flash", pairs, *SHORT, "-o", pairs))
