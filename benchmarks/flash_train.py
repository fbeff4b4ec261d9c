"""Train a flash encoder and measure its accuracy on development mentions.

    python benchmarks/flash_train.py train PAIRS OUT [SETTING=VALUE ...]     # needs torch; writes OUT/NAME
    python benchmarks/flash_train.py evaluate OUT BENCHMARKS                 # needs polars

`train` needs neither polars nor a network, so it can run on a GPU machine. SETTING is a field of
`FlashSettings`; `name=NAME` names the run. `evaluate` measures every run in OUT on the development split of
NCBI Disease and BC5CDR (diseases), with the dictionary alone, on the mentions as they are and with one
spelling error each, and writes results/flash_train.json. The `test` split is not read.
"""

from __future__ import annotations

import argparse
import ast
import json
import resource
import time
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

BENCHMARKS = ("ncbi-disease", "bc5cdr-disease")
_SPELLING_SEED = 7


def train(pairs: Path, out: Path, options: list[str]) -> None:
    """Train one encoder; write its settings and times to OUT/NAME/run.json."""
    import torch

    from sapbert.pairs.artifact import Pairs
    from sapbert.training.distributed import local_device
    from sapbert.training.flash.trainer import train_flash
    from sapbert.training.settings import FlashSettings

    values = {key: _value(text) for key, _, text in (option.partition("=") for option in options)}
    name = str(values.pop("name", "default"))
    settings, device = FlashSettings(**values), local_device()
    started: dict[str, float] = {}

    def on_step(_done: int, _total: int, _figures: object) -> None:
        started.setdefault("first", time.perf_counter())
        started["last"] = time.perf_counter()

    begin, cpu = time.perf_counter(), time.process_time()
    train_flash(Pairs.open(pairs), out / name, settings, device=device, on_step=on_step, overwrite=True)
    seconds = {
        "prepare_seconds": started["first"] - begin,
        "steps_seconds": started["last"] - started["first"],
        "total_seconds": time.perf_counter() - begin,
        "cpu_seconds": time.process_time() - cpu,
        "peak_gigabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6,
    }
    kind = (
        torch.cuda.get_device_name() if device.type == "cuda" else f"CPU, {torch.get_num_threads()} threads"
    )
    run = {"device": kind, **{key: round(value, 1) for key, value in seconds.items()}}
    (out / f"{name}.json").write_text(json.dumps({**run, "settings": asdict(settings)}, indent=2))
    print(name, run)


def evaluate(out: Path, benchmarks: Path) -> None:
    """Evaluate all runs in OUT and write the results."""
    from results import write_results
    from sapbert.artifacts import load_manifest
    from sapbert.encoder.flash.encoder import FlashEncoder
    from sapbert.evaluation.benchmarks.loader import open_evaluation_set
    from sapbert.evaluation.metrics import compute_metrics
    from sapbert.evaluation.rankers import EncoderRanker
    from sapbert.evaluation.run import evaluate

    runs: dict[str, Any] = {}
    for file in sorted(out.glob("*.json")):
        folder, measured = out / file.stem, {}
        ranker = partial(EncoderRanker, encoder=FlashEncoder.open(folder))
        for name in BENCHMARKS:
            plain = replace(open_evaluation_set(benchmarks / name), test_dictionary=None)
            for title, opened in ((name, plain), (f"{name}, misspelt", _misspelt(plain))):
                evaluation = evaluate(opened, ranker, split="dev", depth=5)
                accuracy = compute_metrics(evaluation.results, ks=(1, 5)).accuracy
                measured[title] = [round(100 * (accuracy[k] or 0), 1) for k in (1, 5)]
        settings = load_manifest(folder).settings
        runs[file.stem] = {**json.loads(file.read_text()), "settings": settings, "dev_accuracy": measured}
        print(file.stem, measured)
    write_results("flash_train", runs, ("numpy", "torch"))


def _misspelt(opened: Any) -> Any:
    """Return the evaluation set with one spelling error in the first part of each development mention."""
    import numpy as np
    import polars as pl

    from sapbert.training.flash.misspellings import misspell

    mentions = opened.split("dev")
    parts = mentions["parts"].to_list()
    copies = misspell([part[0] for part in parts], np.random.default_rng(_SPELLING_SEED))
    for row, text in zip(copies.names.tolist(), copies.texts, strict=True):
        parts[row][0] = text
    changed = mentions.with_columns(pl.Series("parts", parts, mentions["parts"].dtype))
    return replace(opened, splits={**opened.splits, "dev": changed})


def _value(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def main() -> None:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    commands = parser.add_subparsers(required=True, dest="command")
    training = commands.add_parser("train")
    training.add_argument("pairs", type=Path)
    training.add_argument("out", type=Path)
    training.add_argument("options", nargs="*", metavar="SETTING=VALUE")
    evaluation = commands.add_parser("evaluate")
    evaluation.add_argument("out", type=Path)
    evaluation.add_argument("benchmarks", type=Path)
    arguments = parser.parse_args()
    if arguments.command == "train":
        train(arguments.pairs, arguments.out, arguments.options)
    else:
        evaluate(arguments.out, arguments.benchmarks)


if __name__ == "__main__":
    main()
