"""Fig. 2 of the paper: cosines of positive and negative pairs in a batch, before and after mining.

Each histogram is normalized, because a batch has hundreds of negatives per positive and the positives would
not be visible as counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import PercentFormatter

from sapbert.paper.similarities import EDGES, Distribution, Similarities
from sapbert.plots.figures import BLUE, GREY, ORANGE, figure, short_name


def draw_similarities(
    models: Mapping[str, Similarities], target: Path, *, batches: int, overwrite: bool = False
) -> None:
    """Draw one row per model: all pairs on the left, mined pairs on the right.

    `models` maps the folder or id of a model to its counts over `batches` batches.
    """
    limits = _limits(models)
    with figure(target, size=(10, 4 * len(models)), overwrite=overwrite) as drawing:
        rows = drawing.subfigures(len(models), 1, squeeze=False, hspace=0.06)[:, 0]
        for row, (model, similarities) in zip(rows, models.items(), strict=True):
            row.suptitle(short_name(model))
            before, after = row.subplots(1, 2, sharex=True, sharey=True)
            _draw(before, similarities.all_pairs, "all pairs of a batch", batches)
            _draw(after, similarities.mined, "hard pairs kept by mining", batches)
            before.set_ylabel("share of pairs")
            before.set_xlim(limits)


def _draw(axes: Axes, distribution: Distribution, title: str, batches: int) -> None:
    kinds = (
        ("positive", distribution.positives, BLUE, ""),
        ("negative", distribution.negatives, ORANGE, "//"),
    )
    for kind, counts, colour, hatch in kinds:
        pairs = int(counts.sum())
        heights = counts / max(pairs, 1)
        label = f"{pairs / batches:,.0f} {kind} pairs"
        tint = (colour, 0.35)
        axes.stairs(heights, EDGES, fill=True, fc=tint, ec=tint, linewidth=0, hatch=hatch, label=label)
        axes.stairs(heights, EDGES, color=colour, linewidth=1.5)
    axes.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    axes.set_xlabel("cosine of two names")
    axes.set_title(f"{title}, {distribution.overlap:.0%} overlap", pad=26)
    # Between the title and the axes, where no bar can overlap it.
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1), ncols=2, labelcolor=GREY, borderaxespad=0.3)


def _limits(models: Mapping[str, Similarities]) -> tuple[float, float]:
    """Limits of the x axis: the range of all cosines, with a margin."""
    all_pairs = [similarities.all_pairs for similarities in models.values()]
    used = np.flatnonzero(sum(counts.positives + counts.negatives for counts in all_pairs))
    return max(EDGES[used[0]] - 0.05, -1), min(EDGES[used[-1] + 1] + 0.05, 1.01)
