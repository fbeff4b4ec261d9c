"""Write the results of a benchmark with command, commit, machine and package versions.

Figures of changed code belong to no commit, so results are not written to `benchmarks/results` while tracked
files are changed, unless the variable `BENCHMARK_ALLOW_CHANGES` is set; the figures are printed instead.
"""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

ALLOW_CHANGES = "BENCHMARK_ALLOW_CHANGES"
FOLDER = Path(__file__).parent / "results"
_ARM_PARTS = {
    ("0x41", "0xd08"): "Cortex-A72",
    ("0x41", "0xd0b"): "Cortex-A76",
    ("0x41", "0xd0c"): "Neoverse-N1",
    ("0x41", "0xd40"): "Neoverse-V1",
    ("0x41", "0xd49"): "Neoverse-N2",
    ("0x41", "0xd4f"): "Neoverse-V2",
    ("0xc0", "0xac3"): "Ampere-1",
    ("0xc0", "0xac4"): "Ampere-1a",
}
"""Names by implementer and part, for Linux, which gives ARM processors no name."""


def write_results(
    name: str,
    figures: dict[str, Any],
    packages: tuple[str, ...] = ("polars", "numpy"),
    *,
    folder: Path = FOLDER,
) -> None:
    """Write `figures` to `NAME.json`, by default in `benchmarks/results`."""
    changed = changed_files(FOLDER.parent)
    content = {
        "benchmark": name,
        "command": command(sys.argv),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": _git(FOLDER.parent, "rev-parse", "HEAD"),
        "changed_files": len(changed),
        "machine": {"cpu": _cpu(), "cores": os.cpu_count(), "system": platform.platform()},
        "versions": {"python": sys.version.split()[0], **{package: version(package) for package in packages}},
        "figures": figures,
    }
    text = json.dumps(content, indent=2) + "\n"
    if changed and folder.resolve() == FOLDER.resolve() and not os.environ.get(ALLOW_CHANGES):
        print(text)
        sys.exit(
            f"{name}.json was not written: {changed[0]} and maybe other files are changed; commit first, "
            f"or set {ALLOW_CHANGES}=1"
        )
    folder.mkdir(exist_ok=True)
    path = folder / f"{name}.json"
    path.write_text(text)
    print(f"-> {path}")


def changed_files(root: Path) -> list[str]:
    """Return the tracked files that differ from the commit, except results, in the repository of `root`."""
    tracked = ("status", "--porcelain", "--untracked-files=no", "--", ":/")
    lines = _git(root, *tracked, ":(top,exclude)benchmarks/results").splitlines()
    return [line.split(maxsplit=1)[1] for line in lines]


def command(arguments: Sequence[str]) -> list[str]:
    """Return a command line; absolute paths, which name folders of one machine, lose their folders."""
    return [re.sub(r"(^|=)/(?:[^/=]+/)*([^/=]+)/?$", r"\1\2", argument) for argument in arguments]


def cpu_name(cpuinfo: str) -> str:
    """Return the name of the first processor in `/proc/cpuinfo`."""
    pairs = re.findall(r"^([^:\n]*?)\s*:[ \t]*(.*)$", cpuinfo, re.MULTILINE)
    fields = dict(reversed(pairs))  # of several processors, the first
    if "model name" in fields:
        return fields["model name"]
    arm = fields.get("CPU implementer"), fields.get("CPU part")
    if None in arm:
        return "unknown"
    return _ARM_PARTS.get(arm, f"ARM implementer {arm[0]} part {arm[1]}")


def _git(folder: Path, *arguments: str) -> str:
    result = subprocess.run(["git", *arguments], cwd=folder, capture_output=True, text=True, check=False)
    return result.stdout.strip()


def _cpu() -> str:
    try:
        return cpu_name(Path("/proc/cpuinfo").read_text())
    except OSError:
        pass
    if sys.platform == "darwin":
        brand = ["sysctl", "-n", "machdep.cpu.brand_string"]
        return subprocess.run(brand, capture_output=True, text=True, check=False).stdout.strip()
    return platform.processor()
