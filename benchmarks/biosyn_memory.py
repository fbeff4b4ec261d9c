"""Memory of a BioSyn epoch on a dictionary of any size: fifteen million invented names by default.

    python benchmarks/biosyn_memory.py WORK                     # half an hour or more, mostly of spelling
    python benchmarks/biosyn_memory.py WORK --names 300000      # to try it

Seeks the candidates of some mentions twice, as two epochs do: names are indexed by n-grams once, and each
time all get vectors, codes and a search. Vectors are made, not encoded, of the dimension of a BERT-base: to
encode them would take hours and measure the encoder. The peak is that of a process that does nothing else;
what it maps of files on disk is told apart, since the system takes those pages back when it needs them.

The original makes two matrices of mentions by names; what they would take is told beside.
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
from sapbert.training import candidates
from sapbert.training.candidates import CandidateSearch
from sapbert.training.labelled import LabelledMentions

NAMES, MENTIONS, EVERY = 15_000_000, 1_000, 50
K = 20
GB = 1 << 30


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("work", type=Path, help="Scratch folder; 30 GB for fifteen million names.")
    parser.add_argument("--names", type=int, default=NAMES)
    parser.add_argument("--mentions", type=int, default=MENTIONS)
    parser.add_argument("--step", choices=["prepare", "seek"], help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.step:
        {"prepare": prepare, "seek": seek}[options.step](options.work, options.names, options.mentions)
        return
    shutil.rmtree(options.work, ignore_errors=True)
    figures: dict[str, object] = {"names": options.names, "mentions": options.mentions}
    for step in ("prepare", "seek"):
        command = [sys.executable, __file__, str(options.work), "--step", step]
        command += ["--names", str(options.names), "--mentions", str(options.mentions)]
        figures[step] = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
        print(step, figures[step], flush=True)
    pairs = options.names * options.mentions
    figures["the original's matrices (float32), GB"] = round(2 * 4 * pairs / GB, 1)
    write_results("biosyn_memory", figures, ("faiss-cpu", "numpy", "scipy"))


def prepare(work: Path, names: int, mentions: int) -> None:
    """Write a vocabulary of invented names, and mentions that are some of them with a letter left out."""
    import polars as pl

    from sapbert.training.labelled_writer import write_labelled
    from sapbert.vocab.intake import Intake
    from sapbert.vocab.vocabulary import Vocabulary
    from sapbert.vocab.writer import write_vocabulary

    begun = time.perf_counter()
    rng = np.random.default_rng(33)
    syllables = np.array([a + b for a in "bcdfghklmnprstvz" for b in "aeiouy"])
    with write_vocabulary(work / "vocabulary", {}, Intake()) as writer:
        for start in range(0, names, 1_000_000):
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
    write_labelled(vocabulary, work / "train.tsv", work / "labelled")
    tell({"seconds": time.perf_counter() - begun})


class MadeVectors:
    """Gives each name a unit vector of its own."""

    dimension = 768
    fingerprint = "made"

    def encode(self, names: Sequence[str]) -> NDArray[np.float32]:
        """Return vectors; equal lists of names have equal ones."""
        rng = np.random.default_rng(sum(map(len, names)))
        vectors = rng.standard_normal((len(names), self.dimension), np.float32)
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        return vectors


def seek(work: Path, _names: int, _mentions: int) -> None:
    labelled, encoder = LabelledMentions.open(work / "labelled"), MadeVectors()
    candidates.EXACT = min(candidates.EXACT, len(labelled.entries) - 1)  # codes, as for a huge dictionary
    search, seconds, shares = CandidateSearch(labelled, work / "run", K), [], []
    memory = Memory()
    for share in (0.5, 1.0):
        begun = time.perf_counter()
        found = search.seek(encoder, share)
        seconds.append(round(time.perf_counter() - begun, 1))
        shares.append(found.found())
    tell({"seconds of each epoch": seconds, "mentions with a right candidate": shares, **memory.stop()})


class Memory:
    """Looks at this process from time to time: what it holds itself, apart from the files that it maps."""

    def __init__(self) -> None:
        self._most = 0
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        while not self._done.wait(EVERY / 1000):
            lines = Path("/proc/self/status").read_text().splitlines()
            own = next((line.split()[1] for line in lines if line.startswith("RssAnon")), "0")
            self._most = max(self._most, int(own) << 10)

    def stop(self) -> dict[str, float]:
        """Look no more, and tell."""
        self._done.set()
        self._thread.join()
        return {"peak GB without mapped files": round(self._most / GB, 2)}


def tell(figures: dict[str, object]) -> None:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
    print(json.dumps({**figures, "peak GB": round(peak / GB, 2)}))


if __name__ == "__main__":
    main()
