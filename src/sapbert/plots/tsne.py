"""Fig. 1 of the paper: names of a few concepts, before and after training.

A concept has a colour and a shape. Neighbours in the legend differ in both, so that they can be distinguished
by colour-blind readers and when printed in grey.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from sapbert.paper.projection import NameSample, Projection
from sapbert.plots.figures import COLOURS, GREY, figure, short_name

SHAPES = "os^DvPX*"
"""Marker codes of matplotlib; `pages/tsne.js` draws the same shapes."""
_LONGEST_LABEL, _COLUMNS = 40, 3
"""Characters per label and columns of the legend that fit eleven inches."""


def marker_of(concept: int) -> tuple[int, int]:
    """Return the numbers of the colour and shape of a concept; they are unique for 56 concepts."""
    colour, cycle = concept % len(COLOURS), concept // len(COLOURS)
    return colour, (colour + cycle) % len(SHAPES)


def draw_tsne(
    sample: NameSample, models: Mapping[str, Projection], target: Path, *, overwrite: bool = False
) -> None:
    """Draw one panel per model, and one legend for all."""
    rows = -(-len(sample.ids) // _COLUMNS)
    size = (max(5.5 * len(models), 11), 6.6 + 0.25 * rows)
    with figure(target, size=size, overwrite=overwrite) as drawing:
        panels = drawing.subplots(1, len(models), squeeze=False)[0]
        for axes, (model, projection) in zip(panels, models.items(), strict=True):
            _draw(axes, sample, projection)
            axes.set_title(
                f"{short_name(model)}\nnearest name has the same concept: {projection.nearest:.0%}"
            )
        handles = [_handle(number, label) for number, label in enumerate(sample.labels)]
        drawing.legend(handles=handles, loc="outside lower center", ncols=_COLUMNS, labelcolor=GREY)


def _draw(axes: Axes, sample: NameSample, projection: Projection) -> None:
    for concept in range(len(sample.ids)):
        x, y = projection.points[sample.concepts == concept].T
        colour, shape = marker_of(concept)
        axes.scatter(
            x,
            y,
            c=COLOURS[colour],
            marker=SHAPES[shape],
            s=75 if SHAPES[shape] == "*" else 42,
            alpha=0.85,
            edgecolors="white",
            linewidths=0.5,
        )
    axes.set(xticks=[], yticks=[], xlim=(-0.04, 1.04), ylim=(-0.04, 1.04), aspect="equal")
    axes.spines[:].set_visible(True)


def _handle(concept: int, label: str) -> Line2D:
    colour, shape = marker_of(concept)
    short = label if len(label) <= _LONGEST_LABEL else f"{label[: _LONGEST_LABEL - 1]}\u2026"
    return Line2D(
        [], [], linestyle="", color=COLOURS[colour], marker=SHAPES[shape], markersize=7, label=short
    )
