"""The public Python API: every stage on a small vocabulary, and the examples in its docstrings."""

from __future__ import annotations

import doctest
import pydoc
import shutil
from pathlib import Path

import pytest

import sapbert
from sapbert import api
from tests.conftest import Exported
from tests.encoder.tiny import tiny_bert

EXAMPLES = Path(__file__).parents[1] / "examples"
IN_ORDER = (
    "read",
    "draw_pairs",
    "merge",
    "build_index",
    "link",
    "evaluate",
    "compare",
    "train",
    "train_flash",
    "export",
)
"""Functions in an order in which each finds the files that it reads."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files that the examples name."""
    folder = tmp_path_factory.mktemp("api")
    (folder / "examples").symlink_to(EXAMPLES)
    (folder / "other.tsv").write_text("concept_id\tname\nother:1\theart attack\n")
    (folder / "xrefs.tsv").write_text("concept_id\txref\nother:1\tmesh:D009203\n")
    sapbert.read("table", folder / "other.tsv", folder / "other")
    benchmark = folder / "benchmark"
    benchmark.mkdir()
    (benchmark / "dictionary.tsv").write_text("concept_id\tname\nx:1\theart attack\nx:2\tmigraine\n")
    (benchmark / "test.tsv").write_text("mention\tconcept_ids\nHeart attacks\tx:1\nasthma\tx:3\n")
    tiny_bert(folder / "path" / "to" / "encoder")
    return folder


@pytest.mark.parametrize("name", IN_ORDER)
def test_the_example_of_each_function_runs(
    name: str,
    folder: Path,
    tiny_export: Exported,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def copy_export(_model: str, target: Path, **_options: object) -> None:
        shutil.copytree(tiny_export.encoder, target)

    # A real export takes seconds, and tests/encoder has its tests.
    monkeypatch.setattr("sapbert.encoder.onnx_export.export.export_model", copy_export)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("SAPBERT_HOME", str(folder / "cache"))
    [example] = [
        found
        for found in doctest.DocTestFinder(recurse=False).find(
            getattr(sapbert, name), name, module=api, globs={"sapbert": sapbert}
        )
        if found.examples
    ]
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS)
    runner.run(example)
    assert runner.summarize(verbose=False).failed == 0, capsys.readouterr().out


def test_the_package_documents_every_public_name() -> None:
    page = pydoc.plain(pydoc.render_doc(sapbert))
    for name in set(sapbert.__all__) - {"__version__"}:
        assert name in dir(sapbert)
        assert getattr(sapbert, name) is not None
        assert name in page


def test_an_unknown_kind_of_vocabulary_is_refused_with_a_suggestion(tmp_path: Path) -> None:
    with pytest.raises(
        sapbert.SapbertError, match=r"unknown kind of vocabulary 'tabel'; did you mean 'table'"
    ):
        sapbert.read("tabel", EXAMPLES / "common.tsv", tmp_path / "out")


def test_settings_of_another_kind_are_refused(tmp_path: Path) -> None:
    from sapbert.vocab.readers.settings import MeshSettings

    with pytest.raises(TypeError, match="table is read with TableSettings, got MeshSettings"):
        sapbert.read("table", EXAMPLES / "common.tsv", tmp_path / "out", MeshSettings())
