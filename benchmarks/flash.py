"""Speed of the bundled flash encoder beside the bundled transformer: many names, one name, and a cold start.

    python benchmarks/flash.py ../shared/data/benchmarks/ncbi-disease

The sides alternate, and the result is the median over rounds. Both encode names of the dictionary with all
cores, from text to float32 vectors; the transformer encodes fewer of them, since it takes so much longer.
A cold start is `sapbert link` as a new process. `open_models.py` measures accuracy.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl

from results import write_results
from sapbert.encoder.open import open_encoder
from sapbert.linking.linker import Linker
from sapbert.protocols import Encoder
from sapbert.text import fold

SINGLE = 500
COLD = 5
SIDES = {"default": 60_000, "open-mini": 3_000}
"""Encoder → names encoded per round."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    names = random.Random(0).sample(read(options.folder / "dictionary.tsv.gz", "name"), max(SIDES.values()))
    mentions = read(options.folder / "dev.tsv.gz", "mention")[:SINGLE]
    figures: dict[str, Any] = {"rounds": options.rounds, "load_average": os.getloadavg()}
    encoders = {}
    for side in SIDES:
        begin = time.perf_counter()
        encoders[side] = open_encoder(side)
        figures[side] = {"open_seconds": round(time.perf_counter() - begin, 3)}
    rates: dict[str, list[float]] = {side: [] for side in SIDES}
    for _ in range(options.rounds):
        for side, count in SIDES.items():
            rates[side].append(count / seconds(encoders[side], names[:count]))
            print(f"{side}: {rates[side][-1]:,.0f} names/s", flush=True)
    for side, encoder in encoders.items():
        figures[side]["names_per_second"] = round(statistics.median(rates[side]))
        figures[side]["one_name_ms"] = round(1000 * median_single(encoder, mentions), 3)
    ratio = figures["default"]["names_per_second"] / figures["open-mini"]["names_per_second"]
    figures["times_as_fast"] = round(ratio, 1)
    figures["one_mention_linked_ms"] = round(1000 * median_link(mentions), 2)
    figures["cold_link_seconds"] = round(statistics.median(cold() for _ in range(COLD)), 2)
    print(figures)
    write_results("flash", figures, ("numpy", "onnxruntime", "tokenizers"))


def read(file: Path, column: str) -> list[str]:
    """Read the distinct names of a column, folded as an index folds them."""
    table = pl.read_csv(file, separator="\t", quote_char=None, infer_schema=False)
    return list(dict.fromkeys(fold(name) for name in table[column].drop_nulls()))


def seconds(encoder: Encoder, names: Sequence[str]) -> float:
    """Measure one call."""
    begin = time.perf_counter()
    encoder.encode(names)
    return time.perf_counter() - begin


def median_single(encoder: Encoder, names: Sequence[str]) -> float:
    """Return the median time of encoding one name."""
    return statistics.median(seconds(encoder, [name]) for name in names)


def median_link(mentions: Sequence[str]) -> float:
    """Return the median time of linking one mention with the open bundled index."""
    linker = Linker.open()
    linker.link(["warm up"])
    times = []
    for mention in mentions:
        begin = time.perf_counter()
        linker.link([mention])
        times.append(time.perf_counter() - begin)
    return statistics.median(times)


def cold() -> float:
    """Return the seconds of one `sapbert link` in a new process."""
    begin = time.perf_counter()
    command = [sys.executable, "-m", "sapbert", "link", "heart attack"]
    subprocess.run(command, check=True, capture_output=True)
    return time.perf_counter() - begin


if __name__ == "__main__":
    main()
