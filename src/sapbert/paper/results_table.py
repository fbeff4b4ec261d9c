"""The table of a sweep: a row a cell, best first, for spreadsheets (CSV) and for people (Markdown).

Seconds are counted from the speed of each step, so that they hold for a cell that was stopped and went on.
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
_FIGURES = {
    "retrieval": "{:.1%}",
    "best_retrieval": "{:.1%}",
    "retrieval_before": "{:.1%}",
    "final_loss": "{:.4f}",
    "seconds": "{:,.0f}",
}
_EXPLAINED = """\
Retrieval is the share of held-out concepts whose name finds its synonym first: with the finished model, at
the best measurement of its run, and before training. Final loss is the mean over the last tenth of the steps;
different losses cannot be compared by it. Seconds are those of training steps.
"""


@dataclass(frozen=True, slots=True)
class SweepResult:
    """A row of the table."""

    cell: str
    """Name of its model folder."""
    varied: Mapping[str, Any]
    """The settings by which cells differ."""
    figures: Mapping[str, float] = field(default_factory=dict)
    """What was measured; nothing where there was a problem."""
    problem: str = ""
    """Why the cell could not be trained."""

    def row(self) -> dict[str, Any]:
        """What stands in each column."""
        figures = {name: self.figures.get(name) for name in _FIGURES}
        return {**self.varied, **figures, "cell": self.cell, "problem": self.problem}


def summarise_metrics(metrics: Sequence[Mapping[str, Any]], *, batch_size: int) -> dict[str, float]:
    """Sum up what a run measured."""
    figures: dict[str, float] = {}
    for row in metrics:
        if "retrieval" in row and row["step"] == 0:
            figures["retrieval_before"] = row["retrieval"]
        elif "retrieval" in row:
            figures["retrieval"] = row["retrieval"]
            figures["best_retrieval"] = max(row["retrieval"], figures.get("best_retrieval", 0.0))
    losses = [row["loss"] for row in metrics if "loss" in row]
    if losses:
        figures["final_loss"] = fmean(losses[-max(len(losses) // 10, 1) :])
    figures["seconds"], told = 0.0, 0
    for row in metrics:
        if "names_per_second" in row:
            figures["seconds"] += (row["step"] - told) * 2 * batch_size / row["names_per_second"]
            told = row["step"]
    return figures


def best_first(results: Iterable[SweepResult]) -> list[SweepResult]:
    """Order by the retrieval of the finished model; cells with a problem come last."""
    return sorted(results, key=lambda result: result.figures.get("retrieval", -1.0), reverse=True)


def write_results(folder: Path, results: Iterable[SweepResult]) -> None:
    """Write the table into `folder`, twice, in place of an older one."""
    rows = [result.row() for result in best_first(results)]
    write_table(folder / MARKDOWN, f"{markdown_table(rows)}\n{_EXPLAINED}", rows)


def write_table(target: Path, text: str, rows: Sequence[Mapping[str, Any]]) -> list[Path]:
    """Write a table as text and, beside it, as CSV, in place of older ones; the first row has all columns."""
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
    """Lay out rows as a table; columns without a value are left out."""
    columns = [name for name in rows[0] if any(row[name] not in (None, "") for row in rows)]
    lines = [columns, ["---"] * len(columns), *([_text(name, row[name]) for name in columns] for row in rows)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _text(name: str, value: object) -> str:
    if value is None:
        return ""
    # A bar in a path or a message would begin another column.
    return _FIGURES.get(name, "{}").format(value).replace("|", "\\|")
