"""What a threshold on the score costs and brings: right answers against answered mentions.

Scores of different rankers are not comparable, so each evaluation has a panel of its own; where there are
several, a last panel holds right answers against answered mentions, in which all of them are.
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
    found: Mapping[str, Mapping[str, ThresholdCurve]], target: Path, *, overwrite: bool = False
) -> None:
    """Draw a row a dictionary and a column an evaluation; `found` is by evaluation, then by dictionary."""
    dictionaries = list(dict.fromkeys(name for own in found.values() for name in own))
    columns = len(found) + (len(found) > 1)
    size = (4.6 * columns, 4.2 * len(dictionaries))
    with figure(target, size=size, overwrite=overwrite) as drawing:
        grid = drawing.subplots(len(dictionaries), columns, squeeze=False)
        for row, dictionary in zip(grid, dictionaries, strict=True):
            curves = {run: own[dictionary] for run, own in found.items() if dictionary in own}
            for axes, run in zip(row, found, strict=False):
                if run in curves:
                    _draw(axes, curves[run])
                    axes.set_title(f"{short_name(run)}, {dictionary}", pad=12)
                else:
                    axes.set_axis_off()
            if len(found) > 1:
                _draw_together(row[-1], curves)
                row[-1].set_title(f"all, {dictionary}", pad=12)


def _draw(axes: Axes, curve: ThresholdCurve) -> None:
    lines = (
        ("right, of the answered", curve.precision, BLUE, "-"),
        ("answered, of all", curve.coverage, ORANGE, "--"),
        ("right, of all", curve.accuracy, GREY, ":"),
    )
    for label, shares, colour, dashes in lines:
        axes.plot(curve.scores, shares, color=colour, linestyle=dashes, linewidth=1.8, label=label)
    axes.set(xlabel="answers from this score on", ylim=(-0.02, 1.02))
    axes.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    axes.legend(loc="lower left", labelcolor=GREY)


def _draw_together(axes: Axes, curves: Mapping[str, ThresholdCurve]) -> None:
    for (run, curve), colour, dashes in zip(curves.items(), cycle(COLOURS), cycle(_DASHES), strict=False):
        label = short_name(run)
        axes.plot(curve.coverage, curve.precision, color=colour, linestyle=dashes, linewidth=1.8, label=label)
    axes.set(xlabel="answered, of all", ylabel="right, of the answered")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(PercentFormatter(1, decimals=0))
    axes.legend(loc="lower left", labelcolor=GREY)
