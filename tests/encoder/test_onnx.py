from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from sapbert.encoder.onnx import OnnxEncoder
from sapbert.errors import ArtifactError, ConfigError
from tests.encoder.conftest import Exported

NAMES = ["heart attack", "fever", "", "acute renal failure of the heart"]


@pytest.fixture
def folder(exported: Callable[[str], Exported], tmp_path: Path) -> Path:
    """A copy that a test may damage."""
    return shutil.copytree(exported("bert").onnx, tmp_path / "encoder")


def test_int8_is_the_default_variant(folder: Path) -> None:
    assert OnnxEncoder.open(folder).variant == "int8"
    assert OnnxEncoder.open(str(folder), variant="fp32").variant == "fp32"


def test_variants_have_different_fingerprints(folder: Path) -> None:
    marks = {OnnxEncoder.open(folder, variant=variant).fingerprint for variant in ("fp32", "int8")}
    assert len(marks) == 2


@pytest.mark.parametrize("variant", ["fp32", "int8"])
def test_a_copied_variant_opens_with_the_same_vectors(folder: Path, tmp_path: Path, variant: str) -> None:
    original = OnnxEncoder.open(folder, variant="int8" if variant == "int8" else "fp32")
    original.copy_to(tmp_path / "index" / "encoder")
    shutil.rmtree(folder)
    copy = OnnxEncoder.open(tmp_path / "index" / "encoder")

    assert (copy.variant, copy.fingerprint) == (variant, original.fingerprint)
    np.testing.assert_array_equal(copy.encode(NAMES), original.encode(NAMES))
    with pytest.raises(ConfigError, match=f"no variant bf16; available: {variant}"):
        OnnxEncoder.open(tmp_path / "index" / "encoder", variant="bf16")  # type: ignore[arg-type]  # on purpose


def test_a_copy_of_the_folder_opens(folder: Path, tmp_path: Path) -> None:
    moved = shutil.copytree(folder, tmp_path / "moved")
    assert OnnxEncoder.open(moved).fingerprint == OnnxEncoder.open(folder).fingerprint


@pytest.mark.parametrize("threads", [1, 3])
def test_threads_do_not_change_vectors(folder: Path, threads: int) -> None:
    several = OnnxEncoder.open(folder, threads=threads).encode(NAMES)
    np.testing.assert_array_equal(several, OnnxEncoder.open(folder).encode(NAMES))


def test_zero_threads_are_refused(folder: Path) -> None:
    with pytest.raises(ConfigError, match="at least one thread, got 0"):
        OnnxEncoder.open(folder, threads=0)


def test_a_model_that_is_not_exported_is_refused_with_the_command_to_export_it(
    exported: Callable[[str], Exported],
) -> None:
    model = exported("bert").model
    with pytest.raises(ArtifactError, match=f"export it first: sapbert export {model} -o OUT"):
        OnnxEncoder.open(model)


def test_an_onnx_folder_of_another_program_is_refused(
    folder: Path, exported: Callable[[str], Exported], tmp_path: Path
) -> None:
    foreign = shutil.copytree(exported("bert").model, tmp_path / "foreign")
    shutil.copytree(folder / "onnx", foreign / "onnx")
    (foreign / "sapbert.json").write_text('{"pooling": "cls", "max_length": 25}')
    with pytest.raises(ArtifactError, match="not an exported encoder"):
        OnnxEncoder.open(foreign)


def test_a_missing_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match="nowhere: no such folder"):
        OnnxEncoder.open(tmp_path / "nowhere")


@pytest.mark.parametrize("name", ["tokenizer.json", "onnx/model_int8.onnx", "onnx/model_int8.onnx.data"])
def test_a_flipped_bit_or_a_missing_file_is_refused(folder: Path, name: str) -> None:
    content = bytearray((folder / name).read_bytes())
    content[len(content) // 2] ^= 1
    (folder / name).write_bytes(content)
    with pytest.raises(ArtifactError, match=f"is damaged: {name} does not match its checksum"):
        OnnxEncoder.open(folder)
    (folder / name).unlink()
    with pytest.raises(ArtifactError, match=f"is damaged: {name} is missing"):
        OnnxEncoder.open(folder, verify=False)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda content: {**content, "pooling": "guess"},
        lambda content: {**content, "colour": "blue"},
        lambda content: {key: value for key, value in content.items() if key != "dimension"},
    ],
)
def test_an_invalid_description_is_refused(
    folder: Path, spoil: Callable[[dict[str, object]], dict[str, object]]
) -> None:
    file = folder / "sapbert.json"
    file.write_text(json.dumps(spoil(json.loads(file.read_text()))))
    with pytest.raises(ArtifactError, match=r"sapbert.json is damaged: .*; export the encoder again"):
        OnnxEncoder.open(folder)


def test_a_truncated_description_is_refused(folder: Path) -> None:
    file = folder / "sapbert.json"
    file.write_text(file.read_text()[:40])
    with pytest.raises(ArtifactError, match=r"sapbert.json is damaged"):
        OnnxEncoder.open(folder)


def test_encoding_loads_neither_torch_nor_polars(folder: Path) -> None:
    code = (
        "import sys; sys.modules.update(dict.fromkeys(['torch', 'transformers', 'polars', 'onnx']))\n"
        "from sapbert.encoder.onnx import OnnxEncoder\n"
        f"print(OnnxEncoder.open({str(folder)!r}).encode(['fever', 'cold']).shape)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("(2, 32)\n", "")


def test_a_symbolic_link_out_of_the_encoder_is_not_copied(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("private key")
    (folder / "huggingface" / "notes.txt").symlink_to(tmp_path / "secret")
    (folder / "huggingface" / "again.json").symlink_to(folder / "huggingface" / "config.json")
    OnnxEncoder.open(folder).copy_to(tmp_path / "copy")

    copied = {file.name for file in (tmp_path / "copy" / "huggingface").iterdir()}
    assert "again.json" in copied
    assert "notes.txt" not in copied
