"""The figure of `tsne` as an interactive HTML page: hover to read a name, click to highlight a concept."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sapbert.pages.document import document
from sapbert.paper.projection import NameSample, Projection
from sapbert.plots.figures import COLOURS, short_name
from sapbert.plots.tsne import SHAPES, marker_of

_BODY = """
<p>Each marker is a name; equal markers are names of one concept. Hover over a marker to read its name.
Click a marker, or a concept below, to highlight all names of the concept. With the keyboard: Tab moves to a
figure, the arrow keys move between names, Enter selects a concept and Escape clears the selection.</p>
<p class="quiet">t-SNE preserves neighbours but distorts distances: only groups are meaningful.</p>
<div id="panels" class="panels"></div>
<p id="selection" class="selection" aria-live="polite"></p>
<h2>Concepts</h2>
<div id="concepts" class="chips"></div>
<noscript><p>Enable JavaScript to see the figures.</p></noscript>
"""


def tsne_page(sample: NameSample, models: Mapping[str, Projection]) -> str:
    """Return a page with one figure per model."""
    return document(
        f"{len(sample.names):,} names of {len(sample.ids)} concepts",
        _BODY,
        script="tsne",
        data=_data(sample, models),
    )


def _data(sample: NameSample, models: Mapping[str, Projection]) -> dict[str, Any]:
    """The data that `pages/tsne.js` reads."""
    markers = [marker_of(number) for number in range(len(sample.ids))]
    return {
        "concepts": [
            {"id": concept, "label": label, "colour": COLOURS[colour], "shape": SHAPES[shape]}
            for concept, label, (colour, shape) in zip(sample.ids, sample.labels, markers, strict=True)
        ],
        "names": [
            [name, concept] for name, concept in zip(sample.names, sample.concepts.tolist(), strict=True)
        ],
        "models": [
            {
                "name": short_name(model),
                "nearest": round(projection.nearest, 3),
                "points": projection.points.round(4).tolist(),
            }
            for model, projection in models.items()
        ],
    }
