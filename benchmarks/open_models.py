"""Zero-shot accuracy of encoders on the benchmarks that have targets.

    python benchmarks/open_models.py               # the default encoder, test splits; once per release
    python benchmarks/open_models.py --model open-mini
    python benchmarks/open_models.py --split dev --model FOLDER --weights 0 0.1 0.2 0.4

Each benchmark is evaluated with the dense score alone and combined with the n-gram score (`hybrid`, character
tf-idf with the given weight), with the dictionary alone and, if the protocol has one, with the enlarged
dictionary. The results include the targets and SapBERT's published figures, which are of an encoder with
110 million parameters, trained on UMLS.
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
DICTIONARY, ENLARGED_DICTIONARY = "dictionary", "test_dictionary"
TARGETS = {
    ("ncbi-disease", ENLARGED_DICTIONARY): (92.5, 96.5),
    ("bc5cdr-disease", ENLARGED_DICTIONARY): (93.3, 96.0),
    ("askapatient", DICTIONARY): (71.0, 90.5),
    ("ncbi-disease", DICTIONARY): (82.0, 88.5),
    ("bc5cdr-disease", DICTIONARY): (84.0, 89.5),
    ("hpo-gsc-plus", DICTIONARY): (75.5, 85.5),
    ("bc5cdr-chemical", ENLARGED_DICTIONARY): (95.0, 96.0),
}
"""Acc@1 and Acc@5 that the bundled flash encoder should reach."""
PUBLISHED = {
    ("ncbi-disease", ENLARGED_DICTIONARY): (92.0, 95.6),
    ("bc5cdr-disease", ENLARGED_DICTIONARY): (93.5, 96.0),
    ("askapatient", DICTIONARY): (70.5, 88.9),
}
"""SapBERT from PubMedBERT, Liu et al. 2021, Table 1."""
CONTROLS = ("craft-mondo",)
"""Sets without a target: nobody chose anything by them."""
SETS = (*dict.fromkeys(name for name, _ in TARGETS), *CONTROLS)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--model", default="default", help="As `sapbert evaluate` takes it.")
    parser.add_argument("--split", choices=("dev", "test"), default="test")
    parser.add_argument(
        "--weights",
        type=float,
        nargs="+",
        default=[0.0],
        help="Weights of the n-gram score.",
    )
    parser.add_argument("--sets", nargs="+", choices=SETS, default=SETS)
    parser.add_argument("--benchmarks", type=Path, default=BENCHMARKS)
    options = parser.parse_args()
    encoder = CachedEncoder(open_encoder(options.model), cache_folder() / "vectors")
    figures = {}
    for name in options.sets:
        benchmark = open_evaluation_set(options.benchmarks / name)
        for weight in options.weights:
            build: RankerFactory = partial(EncoderRanker, encoder=encoder)
            if weight:
                build = partial(HybridRanker, encoder=encoder, weight=weight)
            run = evaluate(benchmark, build, split=options.split)
            for dictionary in run.dictionaries:
                accuracy = compute_metrics(run.for_dictionary(dictionary)).accuracy
                percent = tuple(round(100 * (accuracy[k] or 0), 1) for k in (1, 5))
                system = f"hybrid {weight}" if weight else "dense"
                figures[f"{name}, {dictionary}, {system}"] = {
                    "accuracy": percent,
                    "target": TARGETS.get((name, dictionary)),
                    "published": PUBLISHED.get((name, dictionary)),
                }
                print(f"{name:16} {dictionary:16} {system:12}", *percent, flush=True)
    model = Path(options.model).name
    others = [part for part, usual in ((options.split, "test"), (model, "default")) if part != usual]
    content = {"model": model, "fingerprint": encoder.fingerprint, "figures": figures}
    write_results("_".join(["open_models", *others]), content, ("onnxruntime", "tokenizers", "numpy"))


if __name__ == "__main__":
    main()
