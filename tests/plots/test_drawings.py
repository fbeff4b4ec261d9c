"""What is drawn is what was counted: figures are caught before they are written, and their marks read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.patches import StepPatch

from sapbert.evaluation.thresholds import ThresholdCurve
from sapbert.paper.projection import NameSample, Projection
from sapbert.paper.similarities import BINS, Distribution, Similarities
from sapbert.plots.reliability import draw_reliability
from sapbert.plots.similarities import draw_similarities
from sapbert.plots.thresholds import draw_thresholds
from sapbert.plots.tsne import draw_tsne


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    """The figures that were written."""
    found: list[Figure] = []
    save = Figure.savefig

    def keep(self: Figure, *given: Any) -> None:
        found.append(self)
        save(self, *given, dpi=20)

    monkeypatch.setattr(Figure, "savefig", keep)
    return found


def curve(*precision: float) -> ThresholdCurve:
    scores = np.linspace(0.5, 1, len(precision))
    shares = np.array(precision)
    return ThresholdCurve(scores, shares, 1 - scores / 2, shares / 2)


def test_thresholds_have_one_panel_per_run_and_one_that_compares_them(
    drawn: list[Figure], tmp_path: Path
) -> None:
    runs = {"runs/one": curve(0.7, 0.8), "runs/two": curve(0.6, 0.7, 0.9)}

    draw_thresholds({run: {"dictionary": own} for run, own in runs.items()}, tmp_path / "figure.png")

    one, two, both = drawn[0].axes
    assert [axes.get_title() for axes in drawn[0].axes] == [
        "runs/one, dictionary",
        "runs/two, dictionary",
        "all, dictionary",
    ]
    for axes, own in zip((one, two), runs.values(), strict=True):
        shares = (own.precision, own.coverage, own.accuracy)
        for line, share in zip(axes.lines, shares, strict=True):
            assert np.array_equal(line.get_xydata(), np.column_stack([own.scores, share]))
    for line, (run, own) in zip(both.lines, runs.items(), strict=True):
        assert line.get_label() == run
        assert np.array_equal(line.get_xydata(), np.column_stack([own.coverage, own.precision]))


def test_a_run_without_a_dictionary_leaves_its_panel_empty(drawn: list[Figure], tmp_path: Path) -> None:
    found = {
        "one": {"dictionary": curve(0.7), "test_dictionary": curve(0.9)},
        "two": {"dictionary": curve(0.6)},
    }

    draw_thresholds(found, tmp_path / "figure.png")

    grid = np.array(drawn[0].axes).reshape(2, 3)
    assert [axes.axison for axes in grid[1]] == [True, False, True]
    assert [line.get_label() for line in grid[1, 2].lines] == ["one"]


def test_every_name_is_drawn_at_its_point(drawn: list[Figure], tmp_path: Path) -> None:
    sample = NameSample(("A", "B"), ("fever", "rust"), ("a", "b", "c"), np.array([0, 0, 1]))
    places = np.array([[0.0, 0.1], [0.2, 0.3], [1.0, 0.9]])
    found = {"before": Projection(places, 0.5), "after": Projection(1 - places, 1.0)}

    draw_tsne(sample, found, tmp_path / "figure.png")

    for axes, (model, own) in zip(drawn[0].axes, found.items(), strict=True):
        fever, rust = axes.collections
        assert np.allclose(fever.get_offsets(), own.points[:2])
        assert np.allclose(rust.get_offsets(), own.points[2:])
        assert axes.get_title() == f"{model}\nnearest name has the same concept: {own.nearest:.0%}"
    assert [text.get_text() for text in drawn[0].legends[0].get_texts()] == ["fever", "rust"]


def test_heights_are_shares_of_each_kind_of_pair(drawn: list[Figure], tmp_path: Path) -> None:
    positives, negatives = np.zeros(BINS, np.int64), np.zeros(BINS, np.int64)
    positives[-2:], negatives[-3:] = (1, 3), (10, 20, 10)
    hard = Distribution(positives * 2, negatives)

    found = {"model": Similarities(Distribution(positives, negatives), hard)}
    draw_similarities(found, tmp_path / "figure.png", batches=2)

    before, after = drawn[0].subfigs[0].axes
    for axes in (before, after):
        filled = [patch for patch in axes.patches if isinstance(patch, StepPatch)][::2]
        for patch, shares in zip(filled, ([0, 0.25, 0.75], [0.25, 0.5, 0.25]), strict=True):
            heights, *_ = patch.get_data()
            assert heights[-3:].tolist() == shares
    labels = [patch.get_label() for patch in after.patches][::2]
    assert labels == ["4 positive pairs", "20 negative pairs"]


def test_reliability_has_the_score_and_the_confidence(drawn: list[Figure], tmp_path: Path) -> None:
    def bins(*right: float) -> list[dict[str, float]]:
        return [{"confidence": at / 10, "right": own, "answers": 5} for at, own in enumerate(right)]

    report = {
        "calibration error": {"score": 0.2, "confidence": 0.1},
        "reliability of the score": bins(0.3, 0.4),
        "reliability": bins(0.1, 0.2),
        "mentions answered": 10,
        "right": 0.5,
    }

    draw_reliability({"dev": report, "test": report, "more": report}, tmp_path / "figure.png")

    first, *_, empty = drawn[0].axes
    _, score, confidence = first.lines
    assert (score.get_label(), np.asarray(score.get_ydata()).tolist()) == ("score (error 0.200)", [0.3, 0.4])
    assert confidence.get_label() == "confidence (error 0.100)"
    assert np.asarray(confidence.get_ydata()).tolist() == [0.1, 0.2]
    assert not empty.axison
