"""The paper's Table 7 as it comes out here: how many parameters of each model were trained.

They are counted in the model as it is opened, without the pooler head that BERT's checkpoints carry and no
pooling here uses; the paper counts it (0.59 million).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sapbert.encoder.adapters import count_parameters, reduction_of
from sapbert.encoder.loading import load_encoder
from sapbert.paper.published import PaperTable
from sapbert.paper.results_table import markdown_table

_NOTES = """\
Rows in italics are the paper's. It counts the pooler head (0.59M) as a part of BERT, which is left out here,
and its 0.60M is a misprint: a share of 1.09% is 1.19M parameters.
"""


@dataclass(frozen=True, slots=True)
class TrainedParameters:
    """What was trained of a model."""

    reduction: int | None
    """Of its adapters; None where it has none."""
    parameters: int
    base: int
    """Parameters of the whole encoder without adapters."""


def trained_parameters(model: str) -> TrainedParameters:
    """Open a model, by folder or id, and count."""
    encoder, _ = load_encoder(model)
    return TrainedParameters(reduction_of(encoder), *count_parameters(encoder))


def parameters_text(
    found: Mapping[str, TrainedParameters], table: PaperTable, beside: Mapping[str, str]
) -> str:
    """The table as Markdown, each row with the paper's below it where there is one."""
    rows: list[dict[str, str]] = []
    for row, counted in found.items():
        millions, share = f"{counted.parameters / 1e6:.2f}M", f"{counted.parameters / counted.base:.2%}"
        rows.append(
            {"": row, "reduction": str(counted.reduction or "-"), "parameters": millions, "share": share}
        )
        if row in beside:
            rows.append({"": f"*paper: {beside[row]}*", **table.rows[beside[row]]})
    rows += [{"": f"*{row}*", **cells} for row, cells in table.rows.items() if row not in beside.values()]
    return f"# SapBERT paper, {table.title}\n\n{markdown_table(rows)}\n{_NOTES}"
