"""Time of a complete evaluation, with all names of a dictionary and all test mentions: reference and ours.

    python benchmarks/evaluate_ncbi.py ../shared/data/benchmarks/ncbi-disease

The reference encodes the dictionary padded to 25 tokens, then one mention at a time, multiplies it with the
whole matrix and sorts all scores. Ours is what `sapbert evaluate` does with an exported encoder: fp32, int8,
and int8 again with cached vectors. Each side runs once, because runs of minutes vary little.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from encode import MODEL, PACKAGES, reference
from results import write_results
from sapbert.encoder.onnx import OnnxEncoder
from sapbert.encoder.onnx_export.export import export_model
from sapbert.evaluation.benchmarks.loader import open_evaluation_set
from sapbert.evaluation.rankers import EncoderRanker
from sapbert.evaluation.vector_cache import CachedEncoder
from sapbert.protocols import Encoder

DEPTH = 5


def slow(names: list[str], mentions: list[str]) -> list[int]:
    encode = reference()
    vectors = encode(names)
    return [int(np.argsort(-(vectors @ encode([mention])[0]))[0]) for mention in mentions]


def fast(names: list[str], mentions: list[str], encoder: Encoder) -> list[int]:
    _, rows = EncoderRanker(names, encoder).rank(mentions, DEPTH)
    return [int(row) for row in rows[:, 0]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("folder", type=Path)
    benchmark = open_evaluation_set(parser.parse_args().folder)
    dictionary = benchmark.dictionaries["dictionary"]
    names, ids = list(dictionary.names), dictionary.table["ids"].to_list()
    mentions = benchmark.split("test")["parts"].explode().to_list()
    figures: dict[str, Any] = {"names": len(names), "mentions": len(mentions)}
    with tempfile.TemporaryDirectory(prefix="sapbert-bench-") as folder:
        export_model(MODEL, Path(folder) / "encoder")
        encoders = {
            kind: OnnxEncoder.open(Path(folder) / "encoder", variant=kind) for kind in ("fp32", "int8")
        }
        cached = CachedEncoder(encoders["int8"], Path(folder) / "cache")
        sides = {
            "reference": lambda: slow(names, mentions),
            "fp32": lambda: fast(names, mentions, encoders["fp32"]),
            "int8": lambda: fast(names, mentions, cached),
            "int8 again": lambda: fast(names, mentions, cached),
        }
        expected: list[int] = []
        for side, run in sides.items():
            start = time.perf_counter()
            rows = run()
            seconds = time.perf_counter() - start
            expected = expected or rows
            same = sum(ids[ours] == ids[theirs] for ours, theirs in zip(rows, expected, strict=True))
            figures[side] = {"seconds": round(seconds, 2), "same_concept_first": round(same / len(rows), 4)}
            figures[side]["times_faster"] = round(figures["reference"]["seconds"] / seconds, 2)
            print(side, figures[side], flush=True)
    write_results("evaluate_ncbi", figures, PACKAGES)


if __name__ == "__main__":
    main()
