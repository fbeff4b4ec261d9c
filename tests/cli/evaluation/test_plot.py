from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from sapbert.evaluation.run import Evaluation
from sapbert.evaluation.thresholds import reliability
from sapbert.linking.calibration.file import Calibration
from sapbert.linking.calibration.model import Platt
from sapbert.linking.settings import Method
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
def test_the_suffix_determines_the_image_format(
    plot: Plot, tmp_path: Path, suffix: str, begins: bytes
) -> None:
    target = tmp_path / "new" / f"figure{suffix}"
    done = plot("-o", target)

    assert (done.code, done.out) == (0, "")
    assert done.err.splitlines()[-1] == f"figure -> {target}"
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


def test_the_overlap_is_reported(plot: Plot, tiny_base: Path, tmp_path: Path) -> None:
    done = plot("-o", tmp_path / "figure.png", "--json")
    found = one_json(done)["models"][str(tiny_base)]
    overlaps = f"{found['all']['overlap']:.0%} before mining, {found['hard']['overlap']:.0%} after"
    assert f"{tiny_base}: positive and negative pairs overlap by {overlaps}\n" in done.err


def test_an_unusable_figure_path_is_refused_before_any_work(
    plot: Plot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Pairs, "open", lambda *_: pytest.fail("work was done"))
    (tmp_path / "figure.png").write_text("precious")
    (tmp_path / "folder.png").mkdir()

    assert "a figure must be .png, .svg or .pdf" in refused(plot("-o", tmp_path / "figure.jpg"))
    assert "--overwrite" in refused(plot("-o", tmp_path / "figure.png"))
    assert "is a folder" in refused(plot("-o", tmp_path / "folder.png", "--overwrite"))
    assert (tmp_path / "figure.png").read_text() == "precious"


def test_overwrite_replaces_an_existing_figure(plot: Plot, tmp_path: Path) -> None:
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


@pytest.mark.parametrize("suffix", [".png", ".html"])
def test_names_of_concepts_are_drawn_for_each_model(
    sapbert: Sapbert, tiny_pairs: Pairs, tiny_base: Path, tmp_path: Path, suffix: str
) -> None:
    other, target = tiny_bert(tmp_path / "other", seed=1), tmp_path / f"names{suffix}"
    models = ("--model", tiny_base, "--model", other)
    done = sapbert("plot", "tsne", tiny_pairs.path, *models, "--concepts", 5, "--names", 4, "-o", target)

    assert (done.code, done.out) == (0, "")
    first, second, last = done.err.splitlines()
    assert first.startswith(f"{tiny_base}: ")
    assert second.startswith(f"{other}: ")
    assert second.endswith("%")
    assert last == f"figure -> {target}"
    if suffix == ".html":
        assert "20 names of 5 concepts" in target.read_text()
    again = sapbert("plot", "tsne", tiny_pairs.path, *models, "-o", target)
    assert "--overwrite" in refused(again)


def test_without_scikit_learn_the_extra_is_named(
    sapbert: Sapbert, tiny_pairs: Pairs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "sapbert.paper.projection", raising=False)
    monkeypatch.setitem(sys.modules, "sklearn.manifold", None)
    done = sapbert("plot", "tsne", tiny_pairs.path, "--model", "any", "-o", tmp_path / "figure.png")
    assert "this needs sklearn, which is not installed: pip install 'sapbert[plot]'" in refused(done)


@pytest.fixture
def runs(sapbert: Sapbert, tmp_path: Path) -> list[Path]:
    """Two evaluations on sixty mentions, every fourth of them of another concept than it looks."""
    folder = tmp_path / "set"
    folder.mkdir()
    names = [f"c{number:02} fever" for number in range(60)]
    (folder / "dictionary.tsv").write_text(
        "\n".join(["concept_id\tname", *(f"C{number}\t{name}" for number, name in enumerate(names))])
    )
    gold = [number + 1 if number % 4 == 0 else number for number in range(60)]
    rows = [f"{name}s\tC{own}" for name, own in zip(names, gold, strict=True)]
    (folder / "test.tsv").write_text("\n".join(["mention\tconcept_ids", *rows]))
    for name in ("edit", "tfidf"):
        assert sapbert("evaluate", "--benchmark", folder, "--baseline", name, "-o", tmp_path / name).code == 0
    return [tmp_path / "edit", tmp_path / "tfidf"]


def test_thresholds_are_drawn_and_reported(sapbert: Sapbert, runs: list[Path], tmp_path: Path) -> None:
    done = sapbert("plot", "thresholds", *runs, "-o", tmp_path / "figure.svg", "--json")

    found = one_json(done)
    assert list(found) == [str(run) for run in runs]
    curve = found[str(runs[0])]["dictionary"]
    assert (curve["precision"][0], curve["coverage"][0], curve["accuracy"][0]) == (0.75, 1.0, 0.75)
    assert f"{runs[0]}, dictionary: precision 90% at no threshold" in done.err
    assert "all, dictionary -->" in (tmp_path / "figure.svg").read_text()


def test_reliability_is_drawn_for_evaluations_and_calibrations(
    sapbert: Sapbert, runs: list[Path], tmp_path: Path
) -> None:
    calibration = Calibration(
        index="i", exact=True, sparse_weight=0, method=Method.PLATT, curve=Platt(0, 1, 0), threshold=None,
        report=reliability(Evaluation.open(runs[0]), "dictionary"),
    )  # fmt: skip
    calibration.write(tmp_path / "calibration.json")
    done = sapbert(
        "plot", "reliability", runs[0], tmp_path / "calibration.json", "-o", tmp_path / "figure.svg"
    )

    assert done.code == 0
    first, second, last = done.err.splitlines()
    assert first.partition(": ")[2] == second.partition(": ")[2]
    assert last == f"figure -> {tmp_path / 'figure.svg'}"
    assert (tmp_path / "figure.svg").read_text().count("60 answers, 75.0% correct -->") == 2


def test_a_file_that_is_not_a_calibration_is_refused(sapbert: Sapbert, tmp_path: Path) -> None:
    (tmp_path / "other.json").write_text("{}")
    assert "is not a calibration" in refused(
        sapbert("plot", "reliability", tmp_path / "other.json", "-o", tmp_path / "figure.svg")
    )
