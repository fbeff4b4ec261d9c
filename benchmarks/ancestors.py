"""Time to find all ancestors of each concept of a vocabulary; the target is 0.1 ms for any concept.

Each concept is timed three times and the fastest counts, because other processes share the machine.

    python benchmarks/ancestors.py VOCABULARY...
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np

from results import write_results
from sapbert.vocab.vocabulary import Vocabulary

REPEAT = 3


def measure(path: Path) -> dict[str, float]:
    graph = Vocabulary.open(path, verify=False).hierarchy.graph
    times = np.full((REPEAT, len(graph)), np.inf)
    counts = np.zeros(len(graph), np.int64)
    for run in times:
        for concept in range(len(graph)):
            start = time.perf_counter()
            ancestors = graph.ancestors(concept)
            run[concept] = time.perf_counter() - start
            counts[concept] = len(ancestors)
    fastest = 1e6 * times.min(axis=0)
    return {
        "concepts": len(graph),
        "parents": len(graph.parents_of.numbers),
        "most_ancestors": int(counts.max()),
        "mean_microseconds": round(float(fastest.mean()), 2),
        "p99_microseconds": round(float(np.percentile(fastest, 99)), 2),
        "max_microseconds": round(float(fastest.max()), 2),
    }


def main() -> None:
    figures = {Path(path).name: measure(Path(path)) for path in sys.argv[1:]}
    for name, measured in figures.items():
        print(name, measured)
    write_results("ancestors", figures)


if __name__ == "__main__":
    main()
