"""The model card: what a trained encoder is, what it was made from and what was measured."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sapbert.pairs.artifact import Pairs
from sapbert.training.settings import AdapterName
from sapbert.version import __version__

_TEMPLATE = """---
library_name: {library}
pipeline_tag: sentence-similarity
tags:
- sapbert
- biomedical
- entity-linking
base_model: {base}
---

# A biomedical name encoder

`{base}` after {method} with sapbert {version}: names of one concept lie close together by cosine.

## Use

{use}

## Data

{data}

The licence of the vocabulary the names come from may bind this model too.

## Settings

{settings}

## Measured

{measured}
"""
_RERANKER = """---
library_name: sapbert
base_model: {base}
tags:
- sapbert
- biomedical
- entity-linking
- reranker
---

# A reranker of biomedical names

`{base}` trained with sapbert {version} to read a mention beside the name of a candidate, as a
cross-encoder, and to say how well they fit.

## Use

`sapbert export` writes it for use without torch; `link --reranker` and `evaluate --reranker` take that.

## Data

{data}

The licence of the vocabulary the names come from may bind this model too.

## Settings

{settings}

## Measured

Of mentions held out of training, `held_out_found` is the share with a right candidate, and
`held_out_first` with a right one first; before the first step that is the order of the search.

{measured}
"""
_RETRIEVAL = (
    "`retrieval` is the share of held-out concepts, none of whose names was trained on, "
    "whose name finds its synonym first."
)
_OPEN = "`sapbert.encoder.transformer.TransformerEncoder.open` opens this folder"
_ORDINARY = f"{_OPEN}; so does sentence-transformers, where pooling is cls or mean."
_USE = {
    "none": _ORDINARY,
    "lora": f"{_ORDINARY} Low-rank updates are merged into the weights; `adapter/` has them apart, for peft.",
    "pfeiffer": f"{_OPEN} and puts the adapters in it on their base. Neither transformers nor "
    "sentence-transformers can: the adapters are no part of an ordinary model.",
}


def model_card(
    base: str,
    method: str,
    data: str,
    settings: Mapping[str, Any],
    metrics: Sequence[Mapping[str, Any]],
    *,
    adapter: AdapterName = "none",
) -> str:
    """Write the card of a model trained from `base` by `method` on what `data` says."""
    return _TEMPLATE.format(
        base=base,
        method=method,
        version=__version__,
        library="sapbert" if adapter == "pfeiffer" else "sentence-transformers",
        use=_USE[adapter],
        data=data,
        settings=_table(("setting", "value"), [(name, str(value)) for name, value in settings.items()]),
        measured=_measured(metrics),
    )


def reranker_card(
    base: str, data: str, settings: Mapping[str, Any], metrics: Sequence[Mapping[str, Any]]
) -> str:
    """Write the card of a reranker trained from `base` on what `data` says."""
    rows = [(name, str(value)) for name, value in settings.items()]
    return _RERANKER.format(
        base=base,
        version=__version__,
        data=data,
        settings=_table(("setting", "value"), rows),
        measured=_measured(metrics),
    )


def pairs_data(pairs: Pairs) -> str:
    """Say what pairs were trained on."""
    counts, inputs = pairs.manifest.counts, pairs.manifest.inputs
    return (
        f"{counts['pairs']:,} pairs of {counts['names']:,} names of {counts['concepts']:,} concepts, "
        f"fingerprint `{pairs.manifest.fingerprint}`, drawn from:\n\n{input_list(inputs)}"
    )


def input_list(inputs: Mapping[str, Any]) -> str:
    """List what an artifact was made from."""
    return "\n".join(f"- {name}: {record}" for name, record in inputs.items())


def _measured(metrics: Sequence[Mapping[str, Any]]) -> str:
    # What is measured before the first step stands alone in its row, which tells it from figures of steps.
    names = sorted({name for row in metrics if "loss" not in row for name in row} - {"step"})
    if not names:
        return "Nothing was held out, so nothing was measured."
    rows = [
        (f"{row['step']:,}", *(f"{row[name]:.3f}" if name in row else "" for name in names))
        for row in metrics
        if not row.keys().isdisjoint(names)
    ]
    table = _table(("steps", *names), rows)
    return f"{_RETRIEVAL}\n\n{table}" if "retrieval" in names else table


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
