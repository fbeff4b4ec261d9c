"""Model cards of trained encoders and rerankers: use, training data, settings and metrics."""

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

`{base}` after {method} with sapbert {version}: names of one concept have a high cosine similarity.

## Use

{use}

## Data

{data}

The licence of the vocabulary that the names come from may also apply to this model.

## Settings

{settings}

## Metrics

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

`{base}` trained with sapbert {version} as a cross-encoder: it reads a mention together with the name
of a candidate and scores how well they match.

## Use

`sapbert export` exports it for use without torch; give the result to `link --reranker` or
`evaluate --reranker`.

## Data

{data}

The licence of the vocabulary that the names come from may also apply to this model.

## Settings

{settings}

## Metrics

On mentions held out of training, `held_out_found` is the fraction with a correct candidate and
`held_out_first` the fraction with a correct candidate first; step 0 is the ranking of the search.

{measured}
"""
_FLASH = """---
library_name: sapbert
pipeline_tag: sentence-similarity
tags:
- sapbert
- biomedical
- entity-linking
---

# A flash encoder of biomedical names

The vector of a name is the normalized sum of table rows: one per word, per pair of neighbouring words and per
character n-gram, or as `sapbert.json` lists them. The table was trained with sapbert {version} by
self-alignment: names of one concept have a high cosine similarity.

## Use

`sapbert index --model`, `sapbert evaluate --model` and every other command that takes an encoder open this
folder, without torch. `sapbert flash --base` continues training.

## Data

{data}

The licence of the vocabulary that the names come from may also apply to this model.

## Settings

{settings}

## Metrics

`quantized_retrieval` is the retrieval of the encoder in this folder, the others are those of the table before
it was quantized.

{measured}
"""
_RETRIEVAL = (
    "`retrieval` is the fraction of held-out concepts, none of whose names was trained on, "
    "for which a name retrieves its synonym first."
)
_OPEN = "`sapbert.encoder.transformer.TransformerEncoder.open` opens this folder"
_PLAIN = f"{_OPEN}; so does sentence-transformers if the pooling is cls or mean."
_USE = {
    "none": _PLAIN,
    "lora": f"{_PLAIN} LoRA updates are merged into the weights; `adapter/` has them separately, for peft.",
    "pfeiffer": f"{_OPEN} and adds its adapters to their base. transformers and sentence-transformers "
    "cannot open it, as they do not support these adapters.",
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
    """Return the card of a model trained from `base` by `method`; `data` describes the training data."""
    return _TEMPLATE.format(
        base=base,
        method=method,
        version=__version__,
        library="sapbert" if adapter == "pfeiffer" else "sentence-transformers",
        use=_USE[adapter],
        data=data,
        settings=_table(("setting", "value"), [(name, str(value)) for name, value in settings.items()]),
        measured=_metrics_table(metrics),
    )


def reranker_card(
    base: str, data: str, settings: Mapping[str, Any], metrics: Sequence[Mapping[str, Any]]
) -> str:
    """Return the card of a reranker trained from `base`; `data` describes the training data."""
    rows = [(name, str(value)) for name, value in settings.items()]
    return _RERANKER.format(
        base=base,
        version=__version__,
        data=data,
        settings=_table(("setting", "value"), rows),
        measured=_metrics_table(metrics),
    )


def flash_card(data: str, settings: Mapping[str, Any], metrics: Sequence[Mapping[str, Any]]) -> str:
    """Return the card of a flash encoder; `data` describes the training data."""
    return _FLASH.format(
        version=__version__,
        data=data,
        settings=_table(("setting", "value"), [(name, str(value)) for name, value in settings.items()]),
        measured=_metrics_table(metrics),
    )


def pairs_data(pairs: Pairs) -> str:
    """Describe the training pairs."""
    counts, inputs = pairs.manifest.counts, pairs.manifest.inputs
    return (
        f"{counts['pairs']:,} pairs of {counts['names']:,} names of {counts['concepts']:,} concepts, "
        f"fingerprint `{pairs.manifest.fingerprint}`, drawn from:\n\n{input_list(inputs)}"
    )


def input_list(inputs: Mapping[str, Any]) -> str:
    """Return the inputs of an artifact as a Markdown list."""
    return "\n".join(f"- {name}: {record}" for name, record in inputs.items())


def _metrics_table(metrics: Sequence[Mapping[str, Any]]) -> str:
    # Rows without a loss are evaluations before the first step; their metrics are those of all evaluations.
    names = sorted({name for row in metrics if "loss" not in row for name in row} - {"step"})
    if not names:
        return "No data was held out, so there are no metrics."
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
