"""Time and memory to read UMLS and draw pairs, compared with plain Python, at 1.5 and 15 million rows.

Both sides do the same on the same synthetic release (`synthetic_umls.py`): suppressed rows dropped,
tradenames in both directions, semantic types, preferred names by MRRANK, at most 50 pairs per concept; in
English, as in the paper, and with all languages. They must agree on the number of names and pairs. Each runs
in its own process, whose peak memory the system reports. Ours also writes a vocabulary artifact with
checksums. Because the speed of a machine may vary, half of our runs are before the plain one and half after.

    python benchmarks/read_umls.py [--rows 1500000 15000000] [--data FOLDER] [--repeat 4]
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

from results import write_results
from synthetic_umls import make_release

HERE = Path(__file__).parent
SAPBERT = [sys.executable, "-m", "sapbert"]


def run(command: list[str]) -> dict[str, float]:
    """Run a command and measure it."""
    start = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        sys.exit(f"failed: {' '.join(command)}")
    cpu = usage.ru_utime + usage.ru_stime
    return {"seconds": time.perf_counter() - start, "cpu_seconds": cpu, "peak_gb": usage.ru_maxrss / 1e6}


def ours(meta: Path, language: str, work: Path) -> dict[str, Any]:
    shutil.rmtree(work, ignore_errors=True)
    out = ["-o", str(work / "vocabulary")]
    read = run([*SAPBERT, "read", "umls", str(meta), "--language", language, *out])
    pairs = run([*SAPBERT, "pairs", str(work / "vocabulary"), "-o", str(work / "pairs")])
    counts = json.loads((work / "pairs" / "manifest.json").read_text())["counts"]
    return {
        "seconds": read["seconds"] + pairs["seconds"],
        "read_seconds": read["seconds"],
        "pairs_seconds": pairs["seconds"],
        "cpu_seconds": read["cpu_seconds"] + pairs["cpu_seconds"],
        "peak_gb": max(read["peak_gb"], pairs["peak_gb"]),
        "names": counts["names"],
        "pairs": counts["pairs"],
    }


def plain(meta: Path, language: str, work: Path) -> dict[str, Any]:
    out = work.with_name("plain.json")
    script = str(HERE / "baselines" / "plain_umls.py")
    measured = run([sys.executable, script, str(meta), language, str(work), str(out)])
    return {**measured, **json.loads(out.read_text())}


def middle(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """The median of each time and size; counts are the same in all runs."""
    figures = [key for key, value in runs[0].items() if isinstance(value, float)]
    return {**runs[0], **{key: median(run[key] for run in runs) for key in figures}}


def compare(meta: Path, rows: int, language: str, work: Path, repeat: int) -> dict[str, Any]:
    before = [ours(meta, language, work / "ours") for _ in range(repeat // 2)]
    slow = plain(meta, language, work / "plain.txt")
    after = [ours(meta, language, work / "ours") for _ in range(repeat - repeat // 2)]
    fast = middle([*before, *after])
    if (fast["names"], fast["pairs"]) != (slow["names"], slow["pairs"]):
        sys.exit(f"the two sides disagree: {fast} {slow}")
    faster = slow["seconds"] / fast["seconds"]
    print(
        f"{rows:>11,} rows, {language}: ours {fast['seconds']:.1f} s (read {fast['read_seconds']:.1f}, "
        f"pairs {fast['pairs_seconds']:.1f}), {fast['peak_gb']:.2f} GB; "
        f"plain {slow['seconds']:.1f} s, {slow['peak_gb']:.2f} GB; {faster:.1f} times faster",
        flush=True,
    )
    return {"rows": rows, "language": language, "ours": fast, "plain": slow, "times_faster": faster}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--rows", type=int, nargs="+", default=[1_500_000, 15_000_000])
    parser.add_argument("--data", type=Path, help="folder that keeps the synthetic release between runs")
    parser.add_argument("--repeat", type=int, default=4, help="runs of our side; the result is their median")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="sapbert-bench-") as folder:
        data = options.data or Path(folder)
        results = []
        for rows in options.rows:
            meta = make_release(data / f"umls-{rows}", rows=rows)
            results += [compare(meta, rows, code, Path(folder), options.repeat) for code in ("ENG", "all")]
    write_results("read_umls", {"comparisons": results})


if __name__ == "__main__":
    main()
