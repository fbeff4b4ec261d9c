from __future__ import annotations

import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from sapbert.encoder.onnx import OnnxEncoder
from sapbert.index import build
from sapbert.index.folder import open_index
from sapbert.text import fold
from tests.cli.conftest import EXAMPLE, Sapbert, left_in, one_json, refused
from tests.conftest import Exported


@pytest.fixture
def model(tiny_export: Exported) -> Path:
    """An exported encoder."""
    return tiny_export.encoder


@pytest.fixture
def names(sapbert: Sapbert, tmp_path: Path) -> Path:
    assert sapbert("read", "table", EXAMPLE, "-o", tmp_path / "names").code == 0
    return tmp_path / "names"


def test_an_index_is_built_and_shown(sapbert: Sapbert, names: Path, model: Path, tmp_path: Path) -> None:
    made = sapbert("index", names, "--model", model, "-o", tmp_path / "index")
    shown = sapbert("show", tmp_path / "index")

    assert (made.code, made.out) == (0, "")
    forecast, result, _ = made.err.split("\n", 2)
    assert re.fullmatch(r"[\d,]+ names to encode, [\d,]+ per second: about \d+ seconds?", forecast)
    assert result == f"index -> {tmp_path / 'index'}"
    assert left_in(tmp_path) == {"names", "index"}
    assert (shown.code, shown.err) == (0, "")
    for line in ("search\n", "kind       flat", "precision  fp32", "dimension  32", "recall@10  1.0"):
        assert line in shown.out
    assert f"input encoder: fingerprint {OnnxEncoder.open(model).fingerprint}" in shown.out


def test_an_occupied_target_is_refused_before_anything_is_opened(sapbert: Sapbert, tmp_path: Path) -> None:
    (tmp_path / "index").mkdir()
    (tmp_path / "index" / "notes.txt").write_text("mine")

    refusal = refused(sapbert("index", tmp_path / "no", "--model", tmp_path / "no", "-o", tmp_path / "index"))

    assert "index exists and is not an artifact" in refusal


def test_an_index_finds_its_own_names_with_its_own_encoder(
    sapbert: Sapbert, names: Path, model: Path, tmp_path: Path
) -> None:
    assert sapbert("index", names, "--model", model, "-o", tmp_path / "index", "--variant", "fp32").code == 0

    index, name_table, _ = open_index(tmp_path / "index")
    encoder = OnnxEncoder.open(tmp_path / "index" / "encoder")
    scores, rows = index.search(encoder.encode([fold("Heart Attack")]), 1)
    assert name_table.texts[int(rows[0, 0])] == "heart attack"
    assert scores[0, 0] == pytest.approx(1)
    assert encoder.variant == "fp32"


def test_options_reach_the_index(sapbert: Sapbert, names: Path, model: Path, tmp_path: Path) -> None:
    command = ["index", names, "--model", model, "-o", tmp_path / "index", "--threads", 1]

    manifest = one_json(sapbert(*command, "--kind", "ann", "--precision", "fp16", "--json"))
    refusal = refused(sapbert(*command, "--update", tmp_path / "index", "--overwrite"))
    small = one_json(sapbert(*command, "--dimensions", 8, "--no-inverted", "--json", "--overwrite"))

    asked = {"kind": "ann", "precision": "fp16", "inverted": True, "hybrid": False, "sparse_weight": 0.0}
    assert manifest["settings"] == asked
    assert (manifest["details"]["kind"], manifest["details"]["precision"]) == ("ann", "fp16")
    assert small["settings"] == {
        "dimensions": 8,
        "inverted": False,
        "hybrid": False,
        "sparse_weight": 0.0,
    }
    assert small["details"]["dimension"] == 8
    assert "stores vectors as fp16, which cannot become fp32; give --precision fp16" in refusal


def test_a_model_that_is_not_exported_is_exported_first(
    sapbert: Sapbert, names: Path, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    exported: list[str] = []

    def export_quickly(source: str, target: Path) -> None:
        exported.append(source)
        shutil.copytree(model, target)

    monkeypatch.setattr("sapbert.encoder.onnx_export.export.export_model", export_quickly)

    plain = sapbert("index", names, "--model", model.with_name("model"), "-o", tmp_path / "index")

    assert plain.code == 0
    assert exported == [str(model.with_name("model"))]
    assert left_in(tmp_path) == {"names", "index"}
    inside = OnnxEncoder.open(tmp_path / "index" / "encoder")
    assert inside.fingerprint == OnnxEncoder.open(model).fingerprint


def test_leftovers_of_a_killed_export_are_removed_by_the_next_run(
    sapbert: Sapbert, names: Path, model: Path, tmp_path: Path
) -> None:
    script = (
        "import os, signal, sys, types\n"
        "def write_and_die(source, target):\n"
        "    (target / 'onnx').mkdir(parents=True); (target / 'onnx' / 'model.onnx').write_bytes(bytes(9))\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
        "fake = types.SimpleNamespace(export_model=write_and_die)\n"
        "sys.modules['sapbert.encoder.onnx_export.export'] = fake\n"
        "from sapbert.cli.main import main; main()"
    )
    command = ["index", names, "-o", tmp_path / "index", "--model"]
    killed = subprocess.run(
        [sys.executable, "-c", script, *map(str, command), str(model.with_name("model"))],
        capture_output=True,
        check=False,
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert any(tmp_path.glob(".index.partial-*/encoder/onnx/model.onnx"))

    assert sapbert(*command, model).code == 0
    assert left_in(tmp_path) == {"names", "index"}


def test_without_torch_a_model_that_is_not_exported_is_an_error_with_advice(
    sapbert: Sapbert, names: Path, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "sapbert.encoder.onnx_export.export", raising=False)
    monkeypatch.setitem(sys.modules, "torch", None)

    message = refused(sapbert("index", names, "--model", model.with_name("model"), "-o", tmp_path / "index"))

    assert "was not written by `sapbert export`, and exporting it needs torch" in message
    assert left_in(tmp_path) == {"names"}


def test_ctrl_c_keeps_finished_chunks_and_resume_continues(
    sapbert: Sapbert, names: Path, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build, "ROWS_PER_CHUNK", 100)
    encode = OnnxEncoder.encode
    calls: list[int] = []

    def interrupted(self: OnnxEncoder, batch: list[str]) -> object:
        calls.append(len(batch))
        if len(calls) == 4:
            raise KeyboardInterrupt
        return encode(self, batch)

    monkeypatch.setattr(OnnxEncoder, "encode", interrupted)

    stopped = sapbert("index", names, "--model", model, "-o", tmp_path / "index")

    assert stopped.code == 1
    assert stopped.err.endswith(
        f"stopped; the finished part is kept in {tmp_path / 'index.run'}; add --resume to continue\n"
    )
    assert left_in(tmp_path) == {"names", "index.run"}
    assert left_in(tmp_path / "index.run") == {"chunks.json", "000000.npz", "000001.npz"}
    again = sapbert("index", names, "--model", model, "-o", tmp_path / "index")
    assert "give --resume to continue it or --overwrite to start over" in refused(again)
    assert sapbert("index", names, "--model", model, "-o", tmp_path / "index", "--resume").code == 0
    assert left_in(tmp_path) == {"names", "index"}


def test_ctrl_c_before_anything_is_finished_leaves_nothing(
    sapbert: Sapbert, names: Path, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(source: str, target: Path) -> None:
        target.mkdir()
        raise KeyboardInterrupt

    monkeypatch.setattr("sapbert.encoder.onnx_export.export.export_model", interrupted)

    stopped = sapbert("index", names, "--model", model.with_name("model"), "-o", tmp_path / "index")

    assert stopped == (130, "", "interrupted; no partial output was left behind\n")
    assert left_in(tmp_path) == {"names"}


def test_a_missing_model_is_an_error(sapbert: Sapbert, names: Path, tmp_path: Path) -> None:
    message = refused(sapbert("index", names, "--model", tmp_path / "nowhere", "-o", tmp_path / "index"))

    assert "nowhere" in message


def test_a_damaged_encoder_is_refused(sapbert: Sapbert, names: Path, model: Path, tmp_path: Path) -> None:
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged" / "sapbert.json").write_text("{")

    message = refused(sapbert("index", names, "--model", tmp_path / "damaged", "-o", tmp_path / "index"))

    assert "sapbert.json is damaged" in message
