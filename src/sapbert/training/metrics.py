"""What a run measures, a JSON object a line: easy to plot, and whole after a crash but for the last line."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any


class Metrics:
    """Appends measurements to a file; a resumed run drops those of steps it will repeat."""

    def __init__(self, path: Path, *, after: int) -> None:
        kept = [row for row in read_metrics(path) if row["step"] <= after]
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = open(path, "w", encoding="utf-8")
        for row in kept:
            self._write(row)

    def add(self, step: int, figures: Mapping[str, float]) -> None:
        """Append what was measured after `step` steps."""
        self._write({"step": step, **figures})

    def close(self) -> None:
        """Finish the file."""
        self._file.close()

    def _write(self, row: Mapping[str, Any]) -> None:
        self._file.write(json.dumps(row) + "\n")
        self._file.flush()


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """Read the whole lines of a metrics file; none where there is no file."""
    if not path.exists():
        return []
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    return [json.loads(line) for line in lines if line.endswith("\n")]
