"""What each part of the flash encoder is worth: one training run per variant, measured on development splits.

    python benchmarks/flash_ablations.py sets ../shared/data/benchmarks sets.json.gz
    python benchmarks/flash_ablations.py train PAIRS sets.json.gz --minutes 9

The first command writes the dictionaries and mentions to a plain file, also mentions with one random edit;
the second needs only numpy and torch, and fits a GPU machine with few packages. PAIRS was written by
`scripts/build_flash.py`. Dictionaries without the training mentions.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import string
import tempfile
import time
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import torch

from results import write_results
from sapbert.encoder.flash.encoder import FlashEncoder
from sapbert.pairs.artifact import Pairs
from sapbert.training.distributed import local_device
from sapbert.training.flash.trainer import train_flash
from sapbert.training.settings import FlashSettings

RECIPE = Path(__file__).parents[1] / "recipes" / "flash-open.toml"
SETS = {"ncbi-disease": "dev", "bc5cdr-disease": "dev", "askapatient": "dev", "hpo-gsc-plus": "dev"}
LONG = 3
"""Words of more letters than this are misspelt."""
DEPTH = 40
"""Names searched for five concepts."""
TABLES = tomllib.loads(RECIPE.read_text())["features"]
VARIANTS: dict[str, dict[str, Any]] = {
    "recipe": {},
    "8 bits per dimension": {"bits": 8},
    "4 bits per dimension": {"bits": 4},
    "words only": {"features": {"word": 16}},
    "words and pairs": {"features": {"word": 16, "pair": 16}},
    "without pairs": {"features": {name: bits for name, bits in TABLES.items() if name != "pair"}},
    "characters only": {"features": {name: bits for name, bits in TABLES.items() if "characters" in name}},
    "without sounds": {"features": {name: bits for name, bits in TABLES.items() if "sounds" not in name}},
    "no misspelt copies": {"misspelt": 0.0},
    "temperature 0.03": {"temperature": 0.03},
    "temperature 0.15": {"temperature": 0.15},
    "128 dimensions": {"dimension": 128},
    "tables twice as large": {"features": {name: bits + 1 for name, bits in TABLES.items()}},
    "1,000 steps": {"steps": 1000},
    "batches of 1,024": {"batch_size": 1024},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    commands = parser.add_subparsers(dest="command", required=True)
    sets = commands.add_parser("sets")
    sets.add_argument("benchmarks", type=Path)
    sets.add_argument("out", type=Path)
    train = commands.add_parser("train")
    train.add_argument("pairs", type=Path)
    train.add_argument("sets", type=Path)
    train.add_argument("--minutes", type=float, default=60, help="Start no variant after this time.")
    options = parser.parse_args()
    if options.command == "sets":
        write_sets(options.benchmarks, options.out)
    else:
        run(options.pairs, options.sets, 60 * options.minutes)


def write_sets(benchmarks: Path, out: Path) -> None:
    """Write dictionaries and mentions as JSON."""
    from sapbert.evaluation.benchmarks.loader import open_evaluation_set

    content = {}
    for name, split in SETS.items():
        benchmark = open_evaluation_set(benchmarks / name)
        mentions = benchmark.split(split)
        if "fold" in mentions.columns:
            mentions = mentions.filter(mentions["fold"] == mentions["fold"][0])
        generator = random.Random(7)
        parts = mentions["parts"].to_list()
        content[name] = {
            "names": benchmark.dictionary.table["name"].to_list(),
            "ids": benchmark.dictionary.table["ids"].to_list(),
            "gold": mentions["ids"].to_list(),
            "clean": parts,
            "misspelt": [[misspell(first, generator), *rest] for first, *rest in parts],
        }
    with gzip.open(out, "wt", encoding="utf-8") as file:
        json.dump(content, file)


def misspell(mention: str, generator: random.Random) -> str:
    """Delete, swap, replace or insert one letter inside a word."""
    words = mention.split(" ")
    places = [number for number, word in enumerate(words) if len(word) > LONG and word.isalpha()]
    if not places:
        return mention
    at = generator.choice(places)
    word, letter = words[at], generator.choice(string.ascii_lowercase)
    place = generator.randrange(1, len(word) - 1)
    head, tail = word[:place], word[place + 1 :]
    edits = (
        head + tail,
        head + tail[0] + word[place] + tail[1:],
        head + letter + tail,
        head + letter + word[place:],
    )
    words[at] = generator.choice(edits)
    return " ".join(words)


def run(pairs_folder: Path, sets_file: Path, limit: float) -> None:
    """Train and measure every variant."""
    started = time.perf_counter()
    pairs = Pairs.open(pairs_folder)
    sets = json.loads(gzip.open(sets_file, "rt", encoding="utf-8").read())
    recipe = tomllib.loads(RECIPE.read_text())
    figures: dict[str, Any] = {"pairs": pairs.manifest.fingerprint}
    for name, changes in VARIANTS.items():
        if time.perf_counter() - started > limit:
            break
        begin = time.perf_counter()
        with tempfile.TemporaryDirectory() as folder:
            target = Path(folder) / "flash"
            train_flash(pairs, target, FlashSettings(**{**recipe, **changes}), device=local_device())
            seconds = time.perf_counter() - begin
            size = sum(file.stat().st_size for file in target.glob("*.npy"))
            encoder = FlashEncoder.open(target)
            accuracy = {key: measure(encoder, values) for key, values in sets.items()}
        figures[name] = {"seconds": round(seconds, 1), "megabytes": round(size / 1e6, 1), **accuracy}
        print(f"{time.perf_counter() - started:.0f} s", name, figures[name], flush=True)
        write_results("flash_ablations", figures, ("numpy", "torch"))


def measure(encoder: FlashEncoder, values: dict[str, Any]) -> dict[str, tuple[float, float]]:
    """Return Acc@1 and Acc@5 of the mentions, as they are and misspelt."""
    device = local_device()
    names = torch.from_numpy(encoder.encode(values["names"])).to(device)
    result = {}
    for kind in ("clean", "misspelt"):
        texts = [text for parts in values[kind] for text in parts]
        vectors = torch.from_numpy(encoder.encode(texts)).to(device)
        found = [(block @ names.T).topk(DEPTH).indices.cpu().numpy() for block in vectors.split(1024)]
        rows = iter(np.concatenate(found).tolist())
        right = np.array(
            [
                np.min([hits(next(rows), values["ids"], set(gold)) for _ in parts], axis=0)
                for parts, gold in zip(values[kind], values["gold"], strict=True)
            ]
        )
        first, five = (100 * right.mean(axis=0)).round(1).tolist()
        result[kind] = (first, five)
    return result


def hits(rows: list[int], ids: list[list[str]], gold: set[str]) -> tuple[bool, bool]:
    """Return whether the first, or one of the first five, distinct concepts is right."""
    concepts = list(dict.fromkeys(tuple(ids[row]) for row in rows))[:5]
    right = [bool(gold & set(concept)) for concept in concepts]
    return right[0], any(right)


if __name__ == "__main__":
    main()
