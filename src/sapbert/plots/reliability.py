"""Reliability diagram: accuracy by score and by confidence.

The area of a point is proportional to the number of its answers, because a point far from the diagonal
matters little if it represents three mentions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import PercentFormatter

from sapbert.plots.figures import BLUE, GREY, ORANGE, figure

_LARGEST_AREA = 300
"""Area of the point with the most answers."""
_COLUMNS = 2


def draw_reliability(
    reports: Mapping[str, Mapping[str, Any]], target: Path, *, overwrite: bool = False
) -> None:
    """Draw one panel per report, given by title: score and confidence on held-out mentions.

    A report is that of `sapbert calibrate` or of `evaluation.thresholds.reliability`.
    """
    columns = min(len(reports), _COLUMNS)
    rows = -(-len(reports) // columns)
    with figure(target, size=(5.5 * columns, 6 * rows), overwrite=overwrite) as drawing:
        panels = drawing.subplots(rows, columns, squeeze=False).ravel()
        for axes, (title, report) in zip(panels, reports.items(), strict=False):
            error = report["calibration error"]
            axes.plot([0, 1], [0, 1], color=GREY, linewidth=1, linestyle=":")
            _draw(axes, report["reliability of the score"], ORANGE, f"score (error {error['score']:.3f})")
            _draw(axes, report["reliability"], BLUE, f"confidence (error {error['confidence']:.3f})")
            axes.set(xlim=(-0.03, 1.03), ylim=(-0.03, 1.03), xlabel="score or confidence")
            axes.set_ylabel("correct answers")
            axes.set_title(f"{title}\n{report['mentions answered']:,} answers, {report['right']:.1%} correct")
            axes.legend(loc="upper left", labelcolor=GREY)
            for axis in (axes.xaxis, axes.yaxis):
                axis.set_major_formatter(PercentFormatter(1, decimals=0))
        for axes in panels[len(reports) :]:
            axes.set_axis_off()


def _draw(axes: Axes, bins: Sequence[Mapping[str, float]], colour: str, label: str) -> None:
    confidence, correct, answers = (
        np.array([one[key] for one in bins]) for key in ("confidence", "right", "answers")
    )
    axes.plot(confidence, correct, color=colour, linewidth=1.5, marker=".", label=label)
    axes.scatter(confidence, correct, s=_LARGEST_AREA * answers / answers.max(), color=colour, alpha=0.35)
