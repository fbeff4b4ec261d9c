"""Linking with an index on disk, as written by `sapbert index`."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from sapbert.encoder.onnx import OnnxEncoder
from sapbert.errors import ArtifactError
from sapbert.index.build import build_index
from sapbert.index.folder import open_index
from sapbert.index.settings import IndexSettings, Kind, Precision
from sapbert.linking.linker import Linker
from sapbert.linking.search import DenseSearch
from sapbert.linking.settings import LinkSettings
from tests.conftest import Exported
from tests.index.conftest import NgramEncoder, write
from tests.linking.conftest import FACTS, ROWS, bench_of

MENTIONS = ["hart atack", "COLD", "", "pain in the chest", "low temp"]


@pytest.mark.parametrize("kind", Kind)
@pytest.mark.parametrize("wanted", [LinkSettings(), LinkSettings(prefixes=("hp",), exact=False)])
def test_an_index_on_disk_gives_the_links_of_one_in_memory(
    tmp_path: Path, kind: Kind, wanted: LinkSettings
) -> None:
    encoder = NgramEncoder(256)
    vocabulary = write(tmp_path / "vocabulary", ROWS, FACTS)
    settings = IndexSettings(kind=kind, precision=Precision.FP32)
    build_index(vocabulary, encoder, tmp_path / "index", settings)

    index, name_table, manifest = open_index(tmp_path / "index")
    linker = Linker(encoder, DenseSearch(index), name_table, fingerprint=manifest.fingerprint)

    in_memory = bench_of(tmp_path / "bench", ROWS, FACTS, encoder).linker
    found = linker.link(MENTIONS, k=3, settings=wanted)
    expected = in_memory.link(MENTIONS, k=3, settings=wanted)
    assert len(found[0]) == (3 if not wanted.prefixes else 2)
    for own, other in zip(found, expected, strict=True):
        assert [(c.concept_id, c.matched_name, c.matched_by) for c in own] == [
            (c.concept_id, c.matched_name, c.matched_by) for c in other
        ]
        assert [c.score for c in own] == pytest.approx([c.score for c in other], abs=2e-6)


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory, tiny_export: Exported) -> Path:
    """An index with its own tiny encoder."""
    folder = tmp_path_factory.mktemp("open")
    encoder = OnnxEncoder.open(tiny_export.encoder)
    vocabulary = write(folder / "vocabulary", ROWS, FACTS)
    build_index(vocabulary, encoder, folder / "index", IndexSettings())
    return folder / "index"


def test_an_index_is_opened_with_its_own_encoder(index: Path, tmp_path: Path) -> None:
    moved = Path(shutil.copytree(index, tmp_path / "moved"))

    linker = Linker.open(moved, threads=1)
    [answer] = linker.link(["acute heart attack"], k=2)

    assert len(answer) == 2
    assert answer == Linker.open(index).link(["acute heart attack"], k=2)[0]
    assert linker.fingerprint == json.loads((index / "manifest.json").read_text())["fingerprint"]


def test_an_index_made_by_another_encoder_is_refused_with_both_fingerprints(
    index: Path, tmp_path: Path
) -> None:
    class Disguised(NgramEncoder):
        def copy_to(self, folder: Path) -> None:
            shutil.copytree(index / "encoder", folder)

    vocabulary = write(tmp_path / "vocabulary", ROWS, FACTS)
    build_index(vocabulary, Disguised(32), tmp_path / "other", IndexSettings())

    own = OnnxEncoder.open(index / "encoder").fingerprint
    with pytest.raises(ArtifactError, match=rf"made by the encoder trigrams-32, not by {own}"):
        Linker.open(tmp_path / "other")


@pytest.mark.parametrize("name", ["vectors.npy", "entries/folded.npy", "encoder/tokenizer.json"])
def test_a_truncated_file_is_refused(index: Path, tmp_path: Path, name: str) -> None:
    damaged = Path(shutil.copytree(index, tmp_path / "damaged"))
    (damaged / name).write_bytes((damaged / name).read_bytes()[:-1])
    with pytest.raises(ArtifactError, match=f"damaged: {name} has"):
        Linker.open(damaged)


def test_linking_needs_neither_torch_nor_polars(index: Path) -> None:
    script = (
        "import sys; sys.modules.update(dict.fromkeys(['torch', 'transformers', 'polars', 'pandas']))\n"
        "from sapbert.cli.main import main; main()"
    )
    command = [
        sys.executable,
        "-c",
        script,
        "link",
        "--index",
        str(index),
        "heart attack",
        "--json",
        "-k",
        "1",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)

    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["concept_id"] == "mesh:D1"
