"""The model card: what a trained encoder is, what it was made from and what was measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sapbert.pairs.artifact import Pairs
from sapbert.version import __version__

_TEMPLATE = """---
library_name: sentence-transformers
pipeline_tag: sentence-similarity
tags:
- sapbert
- biomedical
- entity-linking
base_model: {base}
---

# A biomedical name encoder

`{base}` after self-alignment pretraining (SapBERT, Liu et al., NAACL 2021) with sapbert {version}:
names of one concept lie close together by cosine.

## Data

{pairs} pairs of {names} names of {concepts} concepts, fingerprint `{fingerprint}`, drawn from:

{inputs}

The licence of the vocabulary the names come from may bind this model too.

## Settings

{settings}

## Measured

{measured}
"""


def model_card(
    base: str, pairs: Pairs, settings: Mapping[str, Any], metrics: Sequence[Mapping[str, Any]]
) -> str:
    """Write the card of a model trained from `base` on `pairs`."""
    counts = pairs.manifest.counts
    inputs = "\n".join(f"- {name}: {record}" for name, record in pairs.manifest.inputs.items())
    return _TEMPLATE.format(
        base=base,
        version=__version__,
        pairs=f"{counts['pairs']:,}",
        names=f"{counts['names']:,}",
        concepts=f"{counts['concepts']:,}",
        fingerprint=pairs.manifest.fingerprint,
        inputs=inputs,
        settings=_table("setting", "value", {name: str(value) for name, value in settings.items()}),
        measured=_measured(metrics),
    )


def _measured(metrics: Sequence[Mapping[str, Any]]) -> str:
    rows = {f"{row['step']:,}": f"{row['retrieval']:.1%}" for row in metrics if "retrieval" in row}
    if not rows:
        return "Nothing was held out, so nothing was measured."
    explained = (
        "Share of held-out concepts, none of whose names was trained on, whose name finds its synonym first."
    )
    return f"{explained}\n\n{_table('steps', 'found', rows)}"


def _table(left: str, right: str, rows: Mapping[str, str]) -> str:
    lines = [f"| {left} | {right} |", "|---|---|", *(f"| {a} | {b} |" for a, b in rows.items())]
    return "\n".join(lines)
