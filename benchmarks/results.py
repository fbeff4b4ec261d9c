"""Write the results of a benchmark with commit, machine and package versions."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "results"


def write_results(
    name: str,
    figures: dict[str, Any],
    packages: tuple[str, ...] = ("polars", "numpy"),
    *,
    folder: Path = FOLDER,
) -> None:
    """Write `figures` to `NAME.json`, by default in `benchmarks/results`."""
    folder.mkdir(exist_ok=True)
    path = folder / f"{name}.json"
    content = {
        "benchmark": name,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": _git("rev-parse", "HEAD"),
        "changed_files": len(_git("status", "--porcelain", "--untracked-files=no").splitlines()),
        "machine": {"cpu": _cpu(), "cores": os.cpu_count(), "system": platform.platform()},
        "versions": {"python": sys.version.split()[0], **{package: version(package) for package in packages}},
        "figures": figures,
    }
    path.write_text(json.dumps(content, indent=2) + "\n")
    print(f"-> {path}")


def _git(*arguments: str) -> str:
    result = subprocess.run(
        ["git", *arguments], cwd=FOLDER.parent, capture_output=True, text=True, check=False
    )
    return result.stdout.strip()


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), "unknown")
