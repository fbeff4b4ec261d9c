"""The paper's Fig. 1: names of a few concepts, before and after training.

A concept has a colour and a shape, and neighbours in the legend differ in both, so that a reader who is
colour-blind, or prints in grey, need not guess.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from sapbert.paper.projection import NameSample, Projection
from sapbert.plots.figures import COLOURS, GREY, figure, short_name

SHAPES = "os^DvPX*"
"""As matplotlib calls them; `pages/tsne.js` draws the same."""
_LONGEST, _COLUMNS = 40, 3
"""Characters of a label, and labels beside each other: what eleven inches hold."""


def marker_of(concept: int) -> tuple[int, int]:
    """Return the numbers of a concept's colour and shape; no two of 56 have the same."""
    colour, turn = concept % len(COLOURS), concept // len(COLOURS)
    return colour, (colour + turn) % len(SHAPES)


def draw_tsne(
    sample: NameSample, found: Mapping[str, Projection], target: Path, *, overwrite: bool = False
) -> None:
    """Draw a panel a model, and one legend for all."""
    rows = -(-len(sample.ids) // _COLUMNS)
    size = (max(5.5 * len(found), 11), 6.6 + 0.25 * rows)
    with figure(target, size=size, overwrite=overwrite) as drawing:
        panels = drawing.subplots(1, len(found), squeeze=False)[0]
        for axes, (model, projection) in zip(panels, found.items(), strict=True):
            _draw(axes, sample, projection)
            axes.set_title(
                f"{short_name(model)}\n{projection.nearest:.0%} of names have a name of their concept nearest"
            )
        handles = [_handle(number, label) for number, label in enumerate(sample.labels)]
        drawing.legend(handles=handles, loc="outside lower center", ncols=_COLUMNS, labelcolor=GREY)


def _draw(axes: Axes, sample: NameSample, projection: Projection) -> None:
    for concept in range(len(sample.ids)):
        across, up = projection.points[sample.concepts == concept].T
        colour, shape = marker_of(concept)
        axes.scatter(
            across,
            up,
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
    short = label if len(label) <= _LONGEST else f"{label[: _LONGEST - 1]}\u2026"
    return Line2D(
        [], [], linestyle="", color=COLOURS[colour], marker=SHAPES[shape], markersize=7, label=short
    )
