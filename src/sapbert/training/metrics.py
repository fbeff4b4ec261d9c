"""Metrics of a run, one JSON object per line: easy to plot, and after a crash only the last line is lost."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Self


class Metrics:
    """Appends metrics to a file. A resumed run removes those of steps that it will repeat."""

    def __init__(self, path: Path, *, done: int) -> None:
        """Keep the rows of `done` steps: one per step, because a second one is of the end of the run."""
        path.parent.mkdir(parents=True, exist_ok=True)
        # Without a checkpoint, also the measurement before the first step is repeated.
        rows = {row["step"]: row for row in reversed(read_metrics(path)) if done and row["step"] <= done}
        write_metrics(path, reversed(rows.values()))
        self._file = open(path, "a", encoding="utf-8")

    def add(self, step: int, figures: Mapping[str, float]) -> None:
        """Append the metrics after `step` steps."""
        self._file.write(json.dumps({"step": step, **figures}) + "\n")
        self._file.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()


def write_metrics(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Write all rows of a metrics file."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """Read a metrics file up to the first incomplete line; a missing file has no rows."""
    rows: list[dict[str, Any]] = []
    if path.exists():
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
            try:
                rows.append(json.loads(line))
            except ValueError:
                break
    return rows
