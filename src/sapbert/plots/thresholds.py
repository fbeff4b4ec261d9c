"""Precision and coverage by score threshold.

Scores of different rankers are not comparable, so each evaluation has its own panel. If there are several,
another panel compares them by precision and coverage.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import cycle
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.ticker import PercentFormatter

from sapbert.evaluation.thresholds import ThresholdCurve
from sapbert.plots.figures import BLUE, COLOURS, GREY, ORANGE, figure, short_name

_DASHES = ("-", "--", "-.", ":")


def draw_thresholds(
    evaluations: Mapping[str, Mapping[str, ThresholdCurve]], target: Path, *, overwrite: bool = False
) -> None:
    """Draw one row per dictionary and one column per evaluation.

    `evaluations` maps an evaluation to its curves by dictionary.
    """
    dictionaries = list(dict.fromkeys(name for curves in evaluations.values() for name in curves))
    columns = len(evaluations) + (len(evaluations) > 1)
    size = (4.6 * columns, 4.2 * len(dictionaries))
    with figure(target, size=size, overwrite=overwrite) as drawing:
        grid = drawing.subplots(len(dictionaries), columns, squeeze=False)
        for row, dictionary in zip(grid, dictionaries, strict=True):
            curves = {run: of[dictionary] for run, of in evaluations.items() if dictionary in of}
            for axes, run in zip(row, evaluations, strict=False):
                if run in curves:
                    _draw(axes, curves[run])
                    axes.set_title(f"{short_name(run)}, {dictionary}", pad=12)
                else:
                    axes.set_axis_off()
            if len(evaluations) > 1:
                _draw_comparison(row[-1], curves)
                row[-1].set_title(f"all, {dictionary}", pad=12)


def _draw(axes: Axes, curve: ThresholdCurve) -> None:
    lines = (
        ("precision: correct answers", curve.precision, BLUE, "-"),
        ("coverage: answered mentions", curve.coverage, ORANGE, "--"),
        ("accuracy: correct mentions", curve.accuracy, GREY, ":"),
    )
    for label, shares, colour, dashes in lines:
        axes.plot(curve.scores, shares, color=colour, linestyle=dashes, linewidth=1.8, label=label)
    axes.set(xlabel="score threshold", ylim=(-0.02, 1.02))
    axes.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    axes.legend(loc="lower left", labelcolor=GREY)


def _draw_comparison(axes: Axes, curves: Mapping[str, ThresholdCurve]) -> None:
    for (run, curve), colour, dashes in zip(curves.items(), cycle(COLOURS), cycle(_DASHES), strict=False):
        label = short_name(run)
        axes.plot(curve.coverage, curve.precision, color=colour, linestyle=dashes, linewidth=1.8, label=label)
    axes.set(xlabel="coverage", ylabel="precision")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(PercentFormatter(1, decimals=0))
    axes.legend(loc="lower left", labelcolor=GREY)
