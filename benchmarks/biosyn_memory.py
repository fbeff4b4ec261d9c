"""Peak memory of a BioSyn epoch with a dictionary of any size; by default fifteen million synthetic names.

    python benchmarks/biosyn_memory.py WORK --minutes 90        # prints progress; stops after 90 minutes
    python benchmarks/biosyn_memory.py WORK --names 1000000     # a quick trial

Searches the candidates of some mentions twice, as two epochs do: the n-gram index is built once; vectors,
binary codes and a search are made each time. Vectors are random, with the dimension of BERT-base: encoding
the names would take hours and measure the encoder. The peak is that of a separate process. Memory-mapped
files are reported separately, because the system can reclaim their pages.

If the time is up, the peak so far and the current step are written. At the end WORK is removed.

The original implementation makes two matrices (mentions, names); the memory they would need is also written.
"""

from __future__ import annotations

import argparse
import json
import resource
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from results import write_results
from sapbert.training.biosyn import candidates
from sapbert.training.biosyn.candidates import CandidateSearch
from sapbert.training.biosyn.dataset import BiosynDataset

NAMES, MENTIONS, MINUTES = 15_000_000, 1_000, 120
EVERY = 0.2
"""Seconds between two measurements of memory."""
PEAK = "peak.json"
K = 20
GB = 1 << 30


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("work", type=Path, help="Scratch folder; 20 GB for fifteen million names.")
    parser.add_argument("--names", type=int, default=NAMES)
    parser.add_argument("--mentions", type=int, default=MENTIONS)
    parser.add_argument("--minutes", type=float, default=MINUTES, help="Time limit.")
    parser.add_argument("--step", choices=["prepare", "search"], help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.step:
        {"prepare": prepare, "search": search}[options.step](options.work, options.names, options.mentions)
        return
    shutil.rmtree(options.work, ignore_errors=True)
    figures: dict[str, object] = {"names": options.names, "mentions": options.mentions}
    until = time.monotonic() + 60 * options.minutes
    for step in ("prepare", "search"):
        command = [sys.executable, __file__, str(options.work), "--step", step]
        command += ["--names", str(options.names), "--mentions", str(options.mentions)]
        left = until - time.monotonic()
        try:
            done = subprocess.run(command, check=True, stdout=subprocess.PIPE, timeout=left)
        except subprocess.TimeoutExpired:
            figures[step] = {"stopped": True, **json.loads((options.work / PEAK).read_text())}
            break
        figures[step] = json.loads(done.stdout)
        print(step, figures[step], flush=True)
    shutil.rmtree(options.work)
    pairs = options.names * options.mentions
    figures["the original's matrices (float32), GB"] = round(2 * 4 * pairs / GB, 1)
    write_results("biosyn_memory", figures, ("faiss-cpu", "numpy", "scipy"))


def prepare(work: Path, names: int, mentions: int) -> None:
    """Write a vocabulary of synthetic names, and mentions: some of them without their first letter."""
    import polars as pl

    from sapbert.training.biosyn.dataset_writer import write_biosyn_dataset
    from sapbert.vocab.input_files import InputReader
    from sapbert.vocab.vocabulary import Vocabulary
    from sapbert.vocab.writer import write_vocabulary

    start, memory = time.perf_counter(), Memory(work)
    rng = np.random.default_rng(33)
    syllables = np.array([a + b for a in "bcdfghklmnprstvz" for b in "aeiouy"])
    with write_vocabulary(work / "vocabulary", {}, InputReader()) as writer:
        for start in range(0, names, 1_000_000):
            memory.at(f"writing names, {start:,} done")
            count = min(1_000_000, names - start)
            parts = [pl.Series(syllables[rng.integers(0, len(syllables), count)]) for _ in range(10)]
            frame = pl.DataFrame({f"p{number}": part for number, part in enumerate(parts)})
            first, second = (pl.concat_str(f"^p[{span}]$") for span in ("0-4", "5-9"))
            ids = pl.Series(np.arange(start, start + count) // 3).cast(pl.String).str.zfill(8)
            writer.add(
                frame.select(concept_id="x:" + ids, name=pl.concat_str([first, second], separator=" "))
            )
    vocabulary = Vocabulary.open(work / "vocabulary", verify=False)
    chosen = vocabulary.names.gather_every(max(names // mentions, 1)).head(mentions).collect()
    labelled = chosen.select(mention=pl.col("name").str.slice(1), concept_ids="concept_id")
    labelled.write_csv(work / "train.tsv", separator="\t")
    memory.at("sorting names")
    write_biosyn_dataset(vocabulary, work / "train.tsv", work / "labelled")
    shutil.rmtree(work / "vocabulary")  # room for vectors
    print_figures({"seconds": round(time.perf_counter() - start, 1), **memory.stop()})


class RandomVectors:
    """An encoder that returns random unit vectors."""

    dimension = 768
    fingerprint = "random"

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self.made = 0

    def encode(self, names: Sequence[str]) -> NDArray[np.float32]:
        """Return one vector per name; equal lists of names get equal vectors."""
        self.made += len(names)
        self._memory.at(f"making vectors, {self.made // 1_000_000} million done; then codes and search")
        rng = np.random.default_rng(sum(map(len, names)))
        vectors = rng.standard_normal((len(names), self.dimension), np.float32)
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        return vectors


def search(work: Path, _names: int, _mentions: int) -> None:
    memory = Memory(work)
    labelled, encoder = BiosynDataset.open(work / "labelled"), RandomVectors(memory)
    # Search by codes, as for a very large dictionary.
    candidates.EXACT_SEARCH_LIMIT = min(candidates.EXACT_SEARCH_LIMIT, len(labelled.name_table) - 1)
    candidate_search, seconds, shares = CandidateSearch(labelled, work / "run", K), [], []
    for share in (0.5, 1.0):
        start, encoder.made = time.perf_counter(), 0
        memory.at("building and searching the n-gram index" if share < 1 else "second epoch")
        epoch_candidates = candidate_search.search(encoder, share)
        seconds.append(round(time.perf_counter() - start, 1))
        shares.append(epoch_candidates.recall())
    print_figures(
        {"seconds of each epoch": seconds, "mentions with a right candidate": shares, **memory.stop()}
    )


class Memory:
    """Samples the memory of this process, without memory-mapped files."""

    def __init__(self, work: Path) -> None:
        self._most = 0
        self._start = time.monotonic()
        self._activity = "starting"
        work.mkdir(parents=True, exist_ok=True)
        self._file = work / PEAK
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def at(self, activity: str) -> None:
        """Record and print the current step."""
        if activity != self._activity:
            print(f"{time.monotonic() - self._start:6.0f} s  {activity}", file=sys.stderr, flush=True)
        self._activity = activity

    def _watch(self) -> None:
        while not self._done.wait(EVERY):
            lines = Path("/proc/self/status").read_text().splitlines()
            anonymous = next((line.split()[1] for line in lines if line.startswith("RssAnon")), "0")
            self._most = max(self._most, int(anonymous) << 10)
            new = self._file.with_suffix(".new")
            new.write_text(json.dumps({"doing": self._activity, **self._figures()}))
            new.replace(self._file)

    def _figures(self) -> dict[str, float]:
        return {"peak GB without mapped files": round(self._most / GB, 2)}

    def stop(self) -> dict[str, float]:
        """Stop sampling and return the peak."""
        self._done.set()
        self._thread.join()
        return self._figures()


def print_figures(figures: dict[str, object]) -> None:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
    print(json.dumps({**figures, "peak GB": round(peak / GB, 2)}))


if __name__ == "__main__":
    main()
