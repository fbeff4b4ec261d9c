"""How well the encoder that comes with the package links, zero-shot, on the sets that marks are set for.

    python benchmarks/open_mini.py                 # test splits, which are read once for a release
    python benchmarks/open_mini.py --split dev --model FOLDER --weights 0 0.1 0.2 0.4
    python benchmarks/open_mini.py --split dev --model weights   # by sapbert export --format huggingface

Each set is measured with vectors alone and with spelling beside them (`hybrid`, character tf-idf by the given
weight), with the dictionary alone and, where the protocol has one, with the training mentions in it. Marks
and SapBERT's published figures, of an encoder five times as large that was trained on UMLS, stand beside.
"""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path

from results import write_results
from sapbert.cache import cache_folder
from sapbert.encoder.open import open_encoder
from sapbert.evaluation.benchmarks.loader import open_evaluation_set
from sapbert.evaluation.metrics import compute_metrics
from sapbert.evaluation.rankers import EncoderRanker, HybridRanker, RankerFactory
from sapbert.evaluation.run import evaluate
from sapbert.evaluation.vector_cache import CachedEncoder

BENCHMARKS = Path(__file__).parents[2] / "shared" / "data" / "benchmarks"
ALONE, ENLARGED = "dictionary", "test_dictionary"
MARKS = {
    ("ncbi-disease", ENLARGED): (92.5, 96.0),
    ("bc5cdr-disease", ENLARGED): (93.8, 96.3),
    ("askapatient", ALONE): (70.5, 88.9),
    ("ncbi-disease", ALONE): (84.0, 90.0),
    ("bc5cdr-disease", ALONE): (86.0, 91.0),
    ("hpo-gsc-plus", ALONE): (78.0, 88.0),
    ("bc5cdr-chemical", ENLARGED): (95.5, 97.0),
}
PUBLISHED = {
    ("ncbi-disease", ENLARGED): (92.0, 95.6),
    ("bc5cdr-disease", ENLARGED): (93.5, 96.0),
    ("askapatient", ALONE): (70.5, 88.9),
}
"""SapBERT from PubMedBERT, Liu et al. 2021, Table 1."""
SETS = tuple(dict.fromkeys(name for name, _ in MARKS))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--model", default="default", help="As `sapbert evaluate` takes it.")
    parser.add_argument("--split", choices=("dev", "test"), default="test")
    parser.add_argument(
        "--weights", type=float, nargs="+", default=[0.0, 0.2], help="Of spelling; 0 is dense."
    )
    parser.add_argument("--sets", nargs="+", choices=SETS, default=SETS)
    parser.add_argument("--benchmarks", type=Path, default=BENCHMARKS)
    told = parser.parse_args()
    encoder = CachedEncoder(open_encoder(told.model), cache_folder() / "vectors")
    figures = {}
    for name in told.sets:
        benchmark = open_evaluation_set(told.benchmarks / name)
        for weight in told.weights:
            build: RankerFactory = partial(EncoderRanker, encoder=encoder)
            if weight:
                build = partial(HybridRanker, encoder=encoder, weight=weight)
            run = evaluate(benchmark, build, split=told.split)
            for dictionary in run.dictionaries:
                accuracy = compute_metrics(run.for_dictionary(dictionary)).accuracy
                found = tuple(round(100 * (accuracy[k] or 0), 1) for k in (1, 5))
                system = f"hybrid {weight}" if weight else "dense"
                figures[f"{name}, {dictionary}, {system}"] = {
                    "accuracy": found,
                    "mark": MARKS.get((name, dictionary)),
                    "published": PUBLISHED.get((name, dictionary)),
                }
                print(f"{name:16} {dictionary:16} {system:12}", *found, flush=True)
    model = Path(told.model).name
    others = [part for part, usual in ((told.split, "test"), (model, "default")) if part != usual]
    content = {"model": model, "fingerprint": encoder.fingerprint, "figures": figures}
    write_results("_".join(["open_mini", *others]), content, ("onnxruntime", "tokenizers", "numpy"))


if __name__ == "__main__":
    main()
