"""Tables of results as CSV and Markdown: the table of a sweep, and the writers that the paper's tables use.

The table of a sweep has one row per cell, best first. Seconds are computed from the throughput of each step,
so that they are correct for a cell that was interrupted and resumed.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

from sapbert.artifacts import create_file

MARKDOWN = "results.md"
_FORMATS = {
    "retrieval": "{:.1%}",
    "best_retrieval": "{:.1%}",
    "retrieval_before": "{:.1%}",
    "final_loss": "{:.4f}",
    "seconds": "{:,.0f}",
}
_LEGEND = """\
Retrieval is the share of held-out concepts with a name whose nearest name is its synonym: with the final
model, at the best measurement of the run, and before training. Final loss is the mean over the last tenth of
the steps; it cannot be compared between different losses. Seconds are the time of the training steps.
"""


@dataclass(frozen=True, slots=True)
class SweepResult:
    """The result of one cell of a sweep: a row of the table."""

    cell: str
    """Name of its model folder."""
    varied: Mapping[str, Any]
    """The settings by which cells differ."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    """Metrics of the run; empty if training failed."""
    problem: str = ""
    """Why the cell could not be trained."""

    def row(self) -> dict[str, Any]:
        """Return column → value."""
        metrics = {name: self.metrics.get(name) for name in _FORMATS}
        return {**self.varied, **metrics, "cell": self.cell, "problem": self.problem}


def summarise_metrics(metrics: Sequence[Mapping[str, Any]], *, batch_size: int) -> dict[str, float]:
    """Summarise the metrics that a training run logged."""
    summary: dict[str, float] = {}
    for row in metrics:
        if "retrieval" in row and row["step"] == 0:
            summary["retrieval_before"] = row["retrieval"]
        elif "retrieval" in row:
            summary["retrieval"] = row["retrieval"]
            summary["best_retrieval"] = max(row["retrieval"], summary.get("best_retrieval", 0.0))
    losses = [row["loss"] for row in metrics if "loss" in row]
    if losses:
        summary["final_loss"] = fmean(losses[-max(len(losses) // 10, 1) :])
    summary["seconds"], last_step = 0.0, 0
    for row in metrics:
        if "names_per_second" in row:
            summary["seconds"] += (row["step"] - last_step) * 2 * batch_size / row["names_per_second"]
            last_step = row["step"]
    return summary


def best_first(results: Iterable[SweepResult]) -> list[SweepResult]:
    """Sort by the retrieval of the final model; cells with a problem are last."""
    return sorted(results, key=lambda result: result.metrics.get("retrieval", -1.0), reverse=True)


def write_results(folder: Path, results: Iterable[SweepResult]) -> None:
    """Write the table of a sweep to `folder` as Markdown and CSV, replacing older files."""
    rows = [result.row() for result in best_first(results)]
    write_table(folder / MARKDOWN, f"{markdown_table(rows)}\n{_LEGEND}", rows)


def write_table(target: Path, text: str, rows: Sequence[Mapping[str, Any]]) -> list[Path]:
    """Write `text` to `target` and `rows` to a CSV of the same stem; the first row has all columns."""
    table = target.with_suffix(".csv")
    with (
        create_file(table, overwrite=True) as partial,
        open(partial, "w", newline="", encoding="utf-8") as file,
    ):
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    with create_file(target, overwrite=True) as partial:
        partial.write_text(text, encoding="utf-8")
    return [target, table]


def markdown_table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Format rows as a Markdown table; columns without any value are left out."""
    columns = [name for name in rows[0] if any(row[name] not in (None, "") for row in rows)]
    lines = [columns, ["---"] * len(columns), *([_text(name, row[name]) for name in columns] for row in rows)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _text(name: str, value: object) -> str:
    if value is None:
        return ""
    # A `|` in a path or a message would start another column.
    return _FORMATS.get(name, "{}").format(value).replace("|", "\\|")
