"""The same as `tsne`, as a page: point at a name to read it, choose a concept to see where its names went."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sapbert.pages.document import document
from sapbert.paper.projection import NameSample, Projection
from sapbert.plots.figures import COLOURS, short_name
from sapbert.plots.tsne import SHAPES, marker_of

_BODY = """
<p>Each mark is a name; marks that look alike are names of one concept. Point at a mark to read it; click it,
or a concept below, to see where all names of the concept lie. By keyboard, Tab reaches a picture, the arrow
keys go from name to name, Enter chooses and Escape lets go.</p>
<p class="quiet">t-SNE keeps neighbours and bends distances: only what lies together means something.</p>
<div id="panels" class="panels"></div>
<p id="told" class="told" aria-live="polite"></p>
<h2>Concepts</h2>
<div id="concepts" class="chips"></div>
<noscript><p>The pictures are drawn by a script, which this browser does not run.</p></noscript>
"""


def tsne_page(sample: NameSample, found: Mapping[str, Projection]) -> str:
    """Return a page with a picture a model."""
    return document(
        f"{len(sample.names):,} names of {len(sample.ids)} concepts",
        _BODY,
        script="tsne",
        data=_data(sample, found),
    )


def _data(sample: NameSample, found: Mapping[str, Projection]) -> dict[str, Any]:
    """What `pages/tsne.js` reads."""
    looks = [marker_of(number) for number in range(len(sample.ids))]
    return {
        "concepts": [
            {"id": concept, "label": label, "colour": COLOURS[colour], "shape": SHAPES[shape]}
            for concept, label, (colour, shape) in zip(sample.ids, sample.labels, looks, strict=True)
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
            for model, projection in found.items()
        ],
    }
