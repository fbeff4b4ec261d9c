"""The bundled artifacts as a new user meets them."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import sapbert as package
from sapbert import api
from sapbert.defaults import VARIABLE, is_default, resolve_default
from sapbert.encoder.onnx import OnnxEncoder
from sapbert.encoder.transformer import TransformerEncoder
from sapbert.errors import ArtifactError, ConfigError
from sapbert.linking.linker import Linker
from sapbert.linking.settings import LinkSettings
from tests.cli.conftest import Sapbert, left_in, one_json, refused, sapbert
from tests.conftest import Exported
from tests.defaults.conftest import MENTIONS, REPEATED

__all__ = ["sapbert"]


@pytest.fixture(autouse=True)
def forgotten() -> None:
    """Open the default again in each test."""
    api._opened.cache_clear()


def test_mentions_alone_are_linked_with_confidence(sapbert: Sapbert, home: Path) -> None:
    done = sapbert("link", "heart attack", "acute migraine", "-k", 2, "--format", "table")

    assert (done.code, done.err) == (0, "")
    head, first, *_ = done.out.splitlines()
    assert head.split() == [
        "mention", "concept_id", "preferred_name", "matched_name", "matched_by", "score", "confidence"
    ]  # fmt: skip
    assert re.match(
        r"heart attack +mesh:D009203 +Myocardial Infarction +Heart Attack +exact +1\.000 +0\.", first
    )


def test_python_needs_one_line(home: Path) -> None:
    answer = package.link("Heart attack", k=2)

    assert [candidate.concept_id for candidate in answer][:1] == ["mesh:D009203"]
    assert len(answer) == 2
    first, second = str(answer).splitlines()
    assert re.fullmatch(
        r"mesh:D009203  Myocardial Infarction  \(exact: Heart Attack, score 1\.000, confidence \d\.\d\d\)",
        first,
    )
    assert "confidence" not in second
    assert str(package.link("")) == "NIL"
    several = package.link(["Heart attack", ""], k=2)
    assert several == [answer, ()]


def test_neither_torch_nor_polars_is_needed(home: Path) -> None:
    code = (
        "import sys; sys.modules.update(dict.fromkeys(['torch', 'transformers', 'polars', 'faiss']))\n"
        "import sapbert; print(sapbert.link('heart attack', k=1))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("mesh:D009203  Myocardial Infarction")


def test_vectors_are_projected_to_the_dimensions_of_the_index(home: Path) -> None:
    linker = Linker.open()
    whole = OnnxEncoder.open(home / "encoder")

    assert (whole.dimension, linker.encoder.dimension) == (32, 16)
    [[found]] = linker.link(["fever"], k=1, settings=LinkSettings(exact=False))
    assert found.concept_id == "mesh:D005334"
    assert found.score == pytest.approx(1, abs=0.01)


def test_an_inverted_name_is_found_though_it_was_left_out(home: Path) -> None:
    linker = Linker.open()

    assert not linker.is_name("infarction, myocardial")
    assert linker.is_name("diabetes mellitus, type 2")
    [[found]] = linker.link(["Diabetes, Type 2"], k=1)
    assert found.concept_id == "mesh:D003924"


def test_without_exact_names_there_is_no_confidence(home: Path) -> None:
    linker = Linker.open()

    [[found]] = linker.link(["heart attack"], k=1, settings=LinkSettings(exact=False))
    assert (found.concept_id, found.confidence) == ("mesh:D009203", None)


def test_a_given_calibration_replaces_the_bundled_one(sapbert: Sapbert, home: Path, tmp_path: Path) -> None:
    wrong = re.sub(r"\tD\d+", "\tD005260", MENTIONS)
    (tmp_path / "mine.tsv").write_text("mention\tconcept_ids\n" + wrong * REPEATED)
    own = tmp_path / "own.json"

    assert sapbert("calibrate", "default", tmp_path / "mine.tsv", "-o", own).code == 0

    [[shipped]] = Linker.open().link(["heart attack"], k=1)
    [[mine]] = Linker.open(calibration=own).link(["heart attack"], k=1)
    assert shipped.confidence is not None
    assert mine.confidence is not None
    assert mine.confidence < shipped.confidence


def test_another_index_can_be_given(sapbert: Sapbert, home: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.tsv").write_text("id\tname\nx:1\theart attack\n")
    assert sapbert("read", "table", tmp_path / "mine.tsv", "-o", tmp_path / "names").code == 0

    made = sapbert("index", tmp_path / "names", "--model", "default", "-o", tmp_path / "index")
    done = sapbert("link", "--index", tmp_path / "index", "heart attack", "--json")

    assert made.code == 0
    assert one_json(done)["concept_id"] == "x:1"
    inside = OnnxEncoder.open(tmp_path / "index" / "encoder")
    assert inside.fingerprint == OnnxEncoder.open(home / "encoder").fingerprint


def test_a_folder_given_as_a_mention_is_an_error_with_a_hint(sapbert: Sapbert, home: Path) -> None:
    done = sapbert("link", home / "index", "heart attack")

    assert done.code == 2
    assert "is an index, not a mention; give --index" in " ".join(done.err.split())
    assert sapbert("link", "heart attack " * 1000).code == 0


def test_a_sparse_weight_needs_ngrams(sapbert: Sapbert, home: Path) -> None:
    error = refused(sapbert("link", "heart attack", "--sparse-weight", 0.5))

    assert error == "sapbert: the index has no n-grams; build one with `sapbert index --hybrid`\n"


def test_show_default_describes_the_bundled_vocabulary(sapbert: Sapbert, home: Path) -> None:
    done = sapbert("show", "default")

    assert done.code == 0
    assert done.out.startswith(f"{home / 'vocabulary'}: vocabulary ")


def test_lines_of_the_table_have_no_trailing_spaces(sapbert: Sapbert, home: Path) -> None:
    lines = sapbert("link", "heart attack", "migraine", "--format", "table").out.splitlines()

    assert len(lines) > 2
    assert [line.rstrip() for line in lines] == lines


@pytest.mark.parametrize("mentions", [None, 5, [5]])
def test_mentions_that_are_not_strings_are_refused(home: Path, mentions: Any) -> None:
    with pytest.raises(TypeError, match=r"string.*, got (None|5)$"):
        api.link(mentions)


@pytest.mark.parametrize("k", [0, 1.5])
def test_k_is_a_whole_number(home: Path, k: Any) -> None:
    with pytest.raises(ConfigError, match=f"^k is a whole number from 1 to 10,000, got {k}$"):
        api.link("migraine", k=k)


def test_a_vocabulary_given_as_a_mention_must_be_indexed_first(sapbert: Sapbert, home: Path) -> None:
    done = sapbert("link", home / "vocabulary", "heart attack")

    assert done.code == 2
    assert "is a vocabulary, not a mention; index it with `sapbert index`" in " ".join(done.err.split())


@pytest.mark.parametrize("name", ["p.csv", "P.TSV", "p.jsonl", "p.parquet", "p.txt", "p.csv.gz"])
def test_a_table_given_as_the_only_mention_belongs_to_file(
    sapbert: Sapbert, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert sapbert("link", name).code == 0
    Path(name).touch()

    done = sapbert("link", name)

    assert done.code == 2
    assert f"{name} is a file, not a mention; give --file {name}" in " ".join(done.err.split())


def test_the_default_encoder_can_be_exported_to_weights_and_evaluated(
    sapbert: Sapbert, home: Path, tmp_path: Path
) -> None:
    done = sapbert("export", "default", "--format", "huggingface", "-o", tmp_path / "model")

    assert done.code == 0
    names = ["heart attack", "fever", "chronic renal failure"]
    vectors = TransformerEncoder.open(tmp_path / "model", device="cpu").encode(names)
    assert (vectors * OnnxEncoder.open(home / "encoder").encode(names)).sum(axis=1).min() > 0.98
    assert "already exported; --format huggingface" in refused(
        sapbert("export", "default", "-o", tmp_path / "again")
    )
    assert "remove the other options" in refused(
        sapbert("export", "default", "--format", "huggingface", "--max-length", 9, "-o", tmp_path / "again")
    )
    assert left_in(tmp_path) == {"model"}


def test_the_default_encoder_is_evaluated(sapbert: Sapbert, home: Path, tmp_path: Path) -> None:
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "dictionary.tsv").write_text("concept_id\tname\nx:1\theart attack\nx:2\tfever\n")
    (tmp_path / "set" / "test.tsv").write_text("mention\tconcept_ids\nheart attack\tx:1\n")

    done = sapbert("evaluate", "--benchmark", tmp_path / "set", "--model", "default", "--cache", tmp_path)

    assert (done.code, "set, test: default" in done.out) == (0, True)


def test_missing_defaults_are_reported_in_one_line(
    sapbert: Sapbert, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, str(tmp_path))

    assert "no default index is installed" in refused(sapbert("link", "heart attack"))
    assert "no default encoder is installed" in refused(
        sapbert("export", "default", "--format", "huggingface", "-o", tmp_path / "model")
    )


def test_an_index_without_a_calibration_gives_no_confidence(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    moved = Path(shutil.copytree(home, tmp_path / "moved"))
    (moved / "calibration.json").unlink()
    monkeypatch.setenv(VARIABLE, str(moved))

    [[found]] = Linker.open().link(["heart attack"], k=1)
    assert (found.concept_id, found.confidence) == ("mesh:D009203", None)


def test_an_encoder_that_does_not_belong_to_the_index_is_refused(
    home: Path, tiny_export: Exported, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    moved = Path(shutil.copytree(home, tmp_path / "moved"))
    shutil.rmtree(moved / "encoder")
    shutil.copytree(tiny_export.encoder, moved / "encoder")
    description = moved / "encoder" / "sapbert.json"
    description.write_text(description.read_text().replace('"variant": "int8"', '"variant": "fp32"'))
    monkeypatch.setenv(VARIABLE, str(moved))

    with pytest.raises(ArtifactError, match="their vectors do not compare"):
        Linker.open()


def test_only_the_word_default_selects_the_bundled_folder(home: Path) -> None:
    assert is_default("default")
    assert not is_default("./default")
    assert not is_default(Path("default"))
    assert resolve_default("default", "index") == home / "index"
    assert resolve_default("elsewhere/index", "index") == Path("elsewhere/index")
