"""Reproduce Table 7 of the paper: the number of trained parameters per model.

Parameters are counted in the loaded model. This leaves out the pooler head of BERT checkpoints, which no
pooling of this package uses; the paper counts it (0.59 million).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sapbert.encoder.adapters import count_parameters, reduction_of
from sapbert.encoder.loading import load_encoder
from sapbert.paper.published import PaperTable
from sapbert.paper.results_table import markdown_table

_NOTES = """\
Rows in italics are from the paper. The paper counts the pooler head of BERT (0.59M); this table does not.
The paper's 0.60M is a misprint: a share of 1.09% is 1.19M parameters.
"""


@dataclass(frozen=True, slots=True)
class TrainedParameters:
    """Number of trained parameters of a model."""

    reduction: int | None
    """Reduction factor of its adapters; None if it has no adapters."""
    parameters: int
    base: int
    """Parameters of the encoder without adapters."""


def trained_parameters(model: str) -> TrainedParameters:
    """Load a model, given as folder or Hugging Face id, and count its trained parameters."""
    encoder, _ = load_encoder(model)
    return TrainedParameters(reduction_of(encoder), *count_parameters(encoder))


def parameters_text(
    counts: Mapping[str, TrainedParameters], table: PaperTable, paper_rows: Mapping[str, str]
) -> str:
    """Return the table as Markdown; below each row is the row of the paper that `paper_rows` maps it to."""
    rows: list[dict[str, str]] = []
    for row, count in counts.items():
        millions, share = f"{count.parameters / 1e6:.2f}M", f"{count.parameters / count.base:.2%}"
        rows.append(
            {"": row, "reduction": str(count.reduction or "-"), "parameters": millions, "share": share}
        )
        if row in paper_rows:
            rows.append({"": f"*paper: {paper_rows[row]}*", **table.rows[paper_rows[row]]})
    rows += [{"": f"*{row}*", **cells} for row, cells in table.rows.items() if row not in paper_rows.values()]
    return f"# SapBERT paper, {table.title}\n\n{markdown_table(rows)}\n{_NOTES}"
