from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from sapbert.pairs.artifact import Pairs
from tests.cli.conftest import Done, Sapbert, left_in, one_json, refused
from tests.encoder.tiny import tiny_bert
from tests.training.conftest import one_thread as one_thread
from tests.training.conftest import tiny_base as tiny_base
from tests.training.conftest import tiny_pairs as tiny_pairs

Plot = Callable[..., Done]


@pytest.fixture
def plot(sapbert: Sapbert, tiny_pairs: Pairs, tiny_base: Path) -> Plot:
    """Run `sapbert plot similarities` on the tiny pairs and encoder: `plot("-o", target)`."""

    def run(*options: object) -> Done:
        small = ("--model", tiny_base, "--batches", 2, "--batch-size", 8)
        return sapbert("plot", "similarities", tiny_pairs.path, *small, *options)

    return run


@pytest.mark.parametrize(
    ("suffix", "begins"), [(".png", b"\x89PNG"), (".svg", b"<?xml"), (".pdf", b"%PDF"), (".PNG", b"\x89PNG")]
)
def test_the_figure_is_of_the_kind_its_name_says(
    plot: Plot, tmp_path: Path, suffix: str, begins: bytes
) -> None:
    target = tmp_path / "new" / f"figure{suffix}"
    done = plot("-o", target)

    assert (done.code, done.out, done.err) == (0, "", f"figure -> {target}\n")
    assert target.read_bytes().startswith(begins)
    assert left_in(target.parent) == {target.name}


def test_the_counts_are_printed_for_each_model(plot: Plot, tiny_base: Path, tmp_path: Path) -> None:
    other = tiny_bert(tmp_path / "other", seed=1)
    # The same model twice is one row, not twice the pairs.
    found = one_json(
        plot("--model", other, "--model", tiny_base, "-o", tmp_path / "figure.svg", "--json", "--margin", 0.1)
    )

    assert (found["batches"], found["batch_size"], found["margin"], found["seed"]) == (2, 8, 0.1, 33)
    assert list(found["models"]) == [str(tiny_base), str(other)]
    assert len(found["edges"]) == 101
    first, second = (found["models"][str(model)] for model in (tiny_base, other))
    # Both see the same batches, so before mining only the cosines differ.
    for kind in ("positives", "negatives"):
        assert len(first["all"][kind]) == 100
        assert sum(first["all"][kind]) == sum(second["all"][kind]) > 0
        assert first["all"][kind] != second["all"][kind]
        assert sum(first["hard"][kind]) <= sum(first["all"][kind])
    drawn = (tmp_path / "figure.svg").read_text()
    assert "bert -->" in drawn
    assert "other -->" in drawn


def test_what_cannot_be_a_figure_is_refused_before_any_work(
    plot: Plot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Pairs, "open", lambda *_: pytest.fail("work was done"))
    (tmp_path / "figure.png").write_text("precious")
    (tmp_path / "folder.png").mkdir()

    assert "a figure is .png, .svg or .pdf" in refused(plot("-o", tmp_path / "figure.jpg"))
    assert "--overwrite" in refused(plot("-o", tmp_path / "figure.png"))
    assert "is a folder" in refused(plot("-o", tmp_path / "folder.png", "--overwrite"))
    assert (tmp_path / "figure.png").read_text() == "precious"


def test_an_existing_figure_is_replaced_when_asked(plot: Plot, tmp_path: Path) -> None:
    (tmp_path / "figure.png").write_text("old")
    assert plot("-o", tmp_path / "figure.png", "--overwrite").code == 0
    assert (tmp_path / "figure.png").read_bytes().startswith(b"\x89PNG")


def test_a_batch_larger_than_the_data_is_refused(plot: Plot, tmp_path: Path) -> None:
    assert "is more than the" in refused(plot("-o", tmp_path / "figure.png", "--batch-size", 100_000))
    assert left_in(tmp_path) == set()


def test_without_matplotlib_the_extra_is_named(
    plot: Plot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.startswith(("matplotlib", "sapbert.plots"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert "pip install 'sapbert[plot]'" in refused(plot("-o", tmp_path / "figure.png"))
