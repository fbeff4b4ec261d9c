"""The paper's Fig. 2: cosines of positive and negative pairs in a batch, before and after mining.

Heights are shares of each kind: a batch has hundreds of negatives for one positive, and as counts the
positives could not be seen.
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
    found: Mapping[str, Similarities], target: Path, *, batches: int, overwrite: bool = False
) -> None:
    """Draw a row a model: to the left all pairs, to the right those that mining keeps.

    `found` maps a model, by folder or id, to what was counted over `batches` batches.
    """
    span = _span(found)
    with figure(target, size=(10, 4 * len(found)), overwrite=overwrite) as drawing:
        rows = drawing.subfigures(len(found), 1, squeeze=False, hspace=0.06)[:, 0]
        for row, (model, similarities) in zip(rows, found.items(), strict=True):
            row.suptitle(short_name(model))
            before, after = row.subplots(1, 2, sharex=True, sharey=True)
            _draw(before, similarities.all_pairs, "all pairs of a batch", batches)
            _draw(after, similarities.mined, "hard pairs kept by mining", batches)
            before.set_ylabel("share of pairs")
            before.set_xlim(span)


def _draw(axes: Axes, distribution: Distribution, title: str, batches: int) -> None:
    kinds = (
        ("one concept", distribution.positives, BLUE, ""),
        ("different concepts", distribution.negatives, ORANGE, "//"),
    )
    for kind, counts, colour, hatch in kinds:
        pairs = int(counts.sum())
        heights = counts / max(pairs, 1)
        label = f"{pairs / batches:,.0f} of {kind}"
        tint = (colour, 0.35)
        axes.stairs(heights, EDGES, fill=True, fc=tint, ec=tint, linewidth=0, hatch=hatch, label=label)
        axes.stairs(heights, EDGES, color=colour, linewidth=1.5)
    axes.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    axes.set_xlabel("cosine of two names of a batch")
    axes.set_title(f"{title}, {distribution.overlap:.0%} overlap", pad=26)
    # Between title and drawing, where no height of a bar can reach it.
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1), ncols=2, labelcolor=GREY, borderaxespad=0.3)


def _span(found: Mapping[str, Similarities]) -> tuple[float, float]:
    """The part of the axis that has any pair, with a little room."""
    every = [similarities.all_pairs for similarities in found.values()]
    used = np.flatnonzero(sum(counted.positives + counted.negatives for counted in every))
    return max(EDGES[used[0]] - 0.05, -1), min(EDGES[used[-1] + 1] + 0.05, 1.01)
