from __future__ import annotations

from pathlib import Path

import pytest

from sapbert.encoder.onnx import OnnxEncoder
from tests.cli.conftest import Sapbert, left_in, one_json, refused
from tests.encoder.tiny import tiny_bert


@pytest.fixture
def benchmark(tmp_path: Path) -> Path:
    folder = tmp_path / "colds"
    folder.mkdir()
    (folder / "dictionary.tsv").write_text("concept_id\tname\nD1\theart attack\nD2\tcommon cold\n")
    (folder / "test.tsv").write_text("mention\tconcept_ids\nheart attack\tD1\ncommon cold\tD1\n")
    return folder


def test_an_encoder_is_exported_evaluated_and_shown(
    sapbert: Sapbert, tmp_path: Path, benchmark: Path
) -> None:
    model, out = tiny_bert(tmp_path / "model"), tmp_path / "out" / "encoder"
    done = sapbert("export", model, "-o", out, "--pooling", "mean", "--benchmark", benchmark)
    shown = sapbert("show", out)

    assert done.code == 0
    assert done.out == "".join(
        f"{benchmark}  {variant}  Acc@1 50.0%  Acc@5 100.0%\n" for variant in ("fp32", "int8")
    )
    assert done.err.startswith(f"encoder -> {out}\n")
    assert left_in(out.parent) == {"encoder"}
    assert OnnxEncoder.open(out).pooling == "mean"
    assert f"{out}: encoder " in shown.out
    assert "max_length" in shown.out
    told = one_json(sapbert("show", out, "--json"))["details"]["accuracy"][str(benchmark)]
    assert told["int8"] == {"first": 0.5, "fifth": 1.0}
    assert "exists" in refused(sapbert("export", model, "-o", out))


def test_bad_usage_is_refused_before_anything_is_loaded(sapbert: Sapbert, tmp_path: Path) -> None:
    assert "no such folder" in refused(sapbert("export", tmp_path / "nowhere", "-o", tmp_path / "out"))
    wrong = refused(sapbert("export", tmp_path, "-o", tmp_path / "out", "--pooling", "men"))
    assert "unknown pooling 'men', expected one of cls, mean" in wrong
    folder = refused(sapbert("export", tmp_path, "-o", tmp_path / "out", "--benchmark", tmp_path))
    assert "benchmark" in folder
    assert left_in(tmp_path) == set()
