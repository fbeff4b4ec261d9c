"""Start-up time: `sapbert --help`, and linking one mention in a new process.

    python benchmarks/link_cold.py [INDEX]

The targets are 0.3 s for help and 1.5 s for one mention with an index of about 170,000 names. The start-up
time of Python is measured as well. A first, untimed round reads all files: the process is cold, the disk
cache is warm.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time

from results import write_results
from sapbert.artifacts import load_manifest
from sapbert.defaults import DEFAULT, resolve_default

TARGETS = {"sapbert --help": 0.3, "sapbert link": 1.5}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("index", nargs="?", default=DEFAULT, help="default: the bundled index")
    parser.add_argument("--mention", default="hart atack", help="must not be a name in the index")
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    sapbert = [sys.executable, "-m", "sapbert"]
    commands = {
        "python -c pass": [sys.executable, "-c", "pass"],
        "sapbert --help": [*sapbert, "--help"],
        "sapbert link": [*sapbert, "link", "--index", options.index, options.mention],
    }
    seconds: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(options.rounds + 1):
        for name, command in commands.items():
            start = time.perf_counter()
            subprocess.run(command, check=True, capture_output=True)
            seconds[name].append(time.perf_counter() - start)
    figures = {
        name: {
            "median_seconds": round(statistics.median(times[1:]), 3),
            "best_seconds": round(min(times[1:]), 3),
            "target_seconds": TARGETS.get(name),
        }
        for name, times in seconds.items()
    }
    for name, row in figures.items():
        print(f"{name:<16}{row['median_seconds']:>8.3f} s  (best {row['best_seconds']:.3f})")
    manifest = load_manifest(resolve_default(options.index, "index"), verify=False)
    about = {"names": manifest.counts["names"], "kind": manifest.details["kind"], "rounds": options.rounds}
    write_results("link_cold", {"index": about, **figures}, ("numpy", "onnxruntime", "tokenizers", "typer"))


if __name__ == "__main__":
    main()
