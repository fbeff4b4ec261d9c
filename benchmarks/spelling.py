"""N-gram search: ours compared with scikit-learn's matrices, on the same names and mentions.

    python benchmarks/spelling.py ../shared/data/vocabularies [--names 225000]

Names are from real vocabularies; mentions are names with a tenth of their characters removed. Times are CPU
seconds, which depend less on other load. Both sides must agree on every cosine.
"""

from __future__ import annotations

import argparse
import random
import resource
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import polars as pl
from sklearn.feature_extraction.text import TfidfVectorizer

from results import write_results
from sapbert.arrays import Texts
from sapbert.index.sparse import SparseIndex, SparseSettings, write_sparse
from sapbert.text import fold
from sapbert.vocab.text_columns import fold_names

VOCABULARIES = ("mesh_descriptors", "mondo", "hpo_2025-01", "doid", "go", "hgnc")
MENTIONS, K = 256, 20
T = TypeVar("T")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("vocabularies", type=Path)
    parser.add_argument("--names", type=int, default=225_000)
    arguments = parser.parse_args()
    names, mentions = draw(arguments.vocabularies, arguments.names)
    with tempfile.TemporaryDirectory() as folder:
        ours, scores = measure_ours(names, mentions, Path(folder))
    theirs, cosines = measure_scikit_learn(names, mentions)
    difference = np.abs(-np.sort(-cosines, axis=1)[:, :K] - scores).max()
    assert difference < 1e-6, f"the cosines differ by {difference}"
    figures = {"names": len(names), "mentions": MENTIONS, "k": K, "ours": ours, "scikit-learn": theirs}
    print(figures)
    write_results("spelling", figures, ("numpy", "scipy", "scikit-learn"))


def draw(folder: Path, count: int) -> tuple[list[str], list[str]]:
    columns = [
        pl.read_csv(folder / f"{name}.tsv.gz", separator="\t", quote_char=None, infer_schema=False)["name"]
        for name in VOCABULARIES
    ]
    distinct = fold_names(pl.concat(columns).drop_nulls()).unique().sort().to_list()
    rng = random.Random(33)
    names = sorted(rng.sample(distinct, min(count, len(distinct))))
    typed = ("".join(c for c in rng.choice(names) if rng.random() > 0.1) for _ in range(MENTIONS))
    return names, [fold(mention) for mention in typed]


def measure_ours(names: list[str], mentions: list[str], folder: Path) -> tuple[dict[str, Any], Any]:
    encoded = [name.encode() for name in names]
    offsets = np.cumsum([0, *map(len, encoded)]).astype(np.int64)
    texts = Texts(np.frombuffer(b"".join(encoded), np.uint8), offsets)
    build, _ = timed(lambda: write_sparse(texts, folder, SparseSettings()))
    index = SparseIndex.open(folder)
    alone, _ = timed(lambda: [index.search([mention], K) for mention in mentions[:16]])
    together, (scores, _) = timed(lambda: index.search(mentions, K))
    figures = {
        "build_s": build,
        "disk_bytes_per_name": sum(file.stat().st_size for file in folder.iterdir()) / len(names),
        "search_ms_one_mention": alone / 16 * 1000,
        "search_ms_per_mention_in_batch": together / len(mentions) * 1000,
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000,
    }
    return figures, scores


def measure_scikit_learn(names: list[str], mentions: list[str]) -> tuple[dict[str, Any], Any]:
    vectorizer = TfidfVectorizer(analyzer="char", ngram_range=(1, 2))
    build, matrix = timed(lambda: vectorizer.fit_transform(names))
    content = matrix.data.nbytes + matrix.indices.nbytes + matrix.indptr.nbytes
    transposed = matrix.T.tocsr()
    together, cosines = timed(lambda: (vectorizer.transform(mentions) @ transposed).toarray())
    figures = {
        "build_s": build,
        "memory_bytes_per_name": content / len(names),
        "product_ms_per_mention_in_batch": together / len(mentions) * 1000,
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000,
    }
    return figures, cosines


def timed(work: Callable[[], T]) -> tuple[float, T]:
    start = time.process_time()
    result = work()
    return time.process_time() - start, result


if __name__ == "__main__":
    main()
