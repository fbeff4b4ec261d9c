"""Size and accuracy of several layouts of the default index, compared with full vectors.

    python benchmarks/default_index.py --encoder ENCODER --vocabulary VOCABULARY --data WORK

ENCODER and VOCABULARY are those of `scripts/build_defaults.py`. All names are encoded once, in minutes; WORK
keeps the vectors, and every layout is built from them. Mentions are those of the development splits of NCBI
disease and BC5CDR with a concept in the vocabulary; each counts as often as it occurs. `link` is what a user
gets, with exact matches first; `dense` uses vectors only. The target is a loss of at most 0.3 points of
accuracy at 1 and at 5, as a mean over the three sets, compared with exact search over all names in float32.

Most layouts leave out inverted names (`Infarction, Myocardial`); a sample of these is linked as mentions.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from results import write_results
from sapbert.encoder.onnx import OnnxEncoder
from sapbert.index.build import build_index
from sapbert.index.folder import encoder_of_index, open_index
from sapbert.index.name_table import NameTable
from sapbert.index.name_table_writer import write_name_table
from sapbert.index.settings import IndexSettings, Kind, Precision
from sapbert.linking.linker import Linker
from sapbert.linking.search import DenseSearch
from sapbert.linking.settings import LinkSettings
from sapbert.mentions import LabelledMention, read_labelled_mentions
from sapbert.protocols import Encoder, Index
from sapbert.vocab.input_files import InputReader
from sapbert.vocab.vocabulary import Vocabulary

BENCHMARKS = Path(__file__).parents[2] / "shared" / "data" / "benchmarks"
SETS = ("ncbi-disease", "bc5cdr-disease", "bc5cdr-chemical")
FULL = IndexSettings(kind=Kind.FLAT, precision=Precision.FP32)
TARGET = 0.3
INVERTED = 2_000
TIMED = 30


INT8, INT4 = Precision.INT8, Precision.INT4


def layout(
    precision: Precision, dimensions: int | None, *, inverted: bool = False, kind: Kind = Kind.FLAT
) -> IndexSettings:
    return IndexSettings(kind=kind, precision=precision, dimensions=dimensions, inverted=inverted)


LAYOUTS = {
    "int8, all dimensions, inverted names too": layout(INT8, None, inverted=True),
    "int8, all dimensions": layout(INT8, None),
    **{f"int8, {number} dimensions": layout(INT8, number) for number in (256, 128, 64)},
    "int4, all dimensions": layout(INT4, None),
    **{f"int4, {number} dimensions": layout(INT4, number) for number in (256, 224, 192, 128)},
    "int4, 256 dimensions, codes": layout(INT4, 256, kind=Kind.ANN),
}


@dataclass(frozen=True)
class PrecomputedEncoder:
    """An encoder with precomputed vectors of all mentions."""

    vectors: dict[str, NDArray[np.float32]]
    dimension: int
    fingerprint: str

    def encode(self, names: Sequence[str]) -> NDArray[np.float32]:
        """Return the precomputed vectors."""
        return np.array([self.vectors[name] for name in names], np.float32)

    def copy_to(self, folder: Path) -> None:
        """Write nothing: an index is measured without its encoder."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--encoder", type=Path, required=True)
    parser.add_argument("--vocabulary", type=Path, required=True)
    parser.add_argument("--data", type=Path, required=True, help="Scratch folder; kept between runs.")
    parser.add_argument("--benchmarks", type=Path, default=BENCHMARKS)
    parser.add_argument("--threads", type=int, help="Threads that encode.")
    options = parser.parse_args()
    encoder = OnnxEncoder.open(options.encoder, threads=options.threads)
    vocabulary = Vocabulary.open(options.vocabulary)
    full = options.data / f"full-{encoder.fingerprint[:8]}-{vocabulary.fingerprint[:8]}"
    if not full.exists():
        build_index(vocabulary, encoder, full, FULL, carry_encoder=False, progress=show)
    _, name_table, _ = open_index(full)
    sets = {name: known(options.benchmarks / name / "dev.tsv.gz", name_table) for name in SETS}
    inverted = inverted_names(vocabulary, name_table)
    texts = sorted({mention.text for part in (*sets.values(), inverted) for mention in part})
    vectors = dict(zip(texts, encoder.encode(texts), strict=True))
    precomputed = PrecomputedEncoder(vectors, encoder.dimension, encoder.fingerprint)
    figures = {"full": measure(full, precomputed, sets, inverted)}
    for name, settings in LAYOUTS.items():
        folder = options.data / "layout"
        build_index(vocabulary, encoder, folder, settings, carry_encoder=False, update=full, overwrite=True)
        figures[name] = measure(folder, precomputed, sets, inverted)
    for figure in figures.values():
        figure["loss"] = {k: loss(figures["full"], figure, k) for k in ("acc@1", "acc@5")}
    print_table(figures)
    inputs = {"encoder": encoder.fingerprint, "vocabulary": vocabulary.fingerprint, "target_points": TARGET}
    write_results("default_index", {**inputs, "layouts": figures}, ("numpy", "faiss-cpu", "onnxruntime"))


def known(table: Path, name_table: NameTable) -> list[LabelledMention]:
    """Read the mentions with a concept in the vocabulary."""
    labelled = read_labelled_mentions(table, InputReader(), prefix="mesh")
    return [
        mention for mention in labelled if (name_table.concepts_of(sorted(mention.concept_ids)) >= 0).any()
    ]


def inverted_names(vocabulary: Vocabulary, full: NameTable) -> list[LabelledMention]:
    """A sample of the inverted names that most layouts leave out, with their concepts."""
    with TemporaryDirectory() as place:
        kept = write_name_table(vocabulary, Path(place), inverted=False)
        names = full.folded.span(0, len(full))
        left_out = np.flatnonzero(kept.rows_of(names) < 0)
    rows = left_out[np.linspace(0, len(left_out) - 1, INVERTED).astype(np.int64)].tolist()
    concepts = (full.link_concepts[full.links_of(row)] for row in rows)
    return [
        LabelledMention(names[row], frozenset(full.concepts.take(numbers)))
        for row, numbers in zip(rows, concepts, strict=True)
    ]


def measure(
    folder: Path,
    encoder: PrecomputedEncoder,
    sets: Mapping[str, list[LabelledMention]],
    inverted: list[LabelledMention],
) -> dict[str, Any]:
    """Link all mentions with the index in `folder`."""
    index, name_table, manifest = open_index(folder, threads=1)
    cut = encoder_of_index(folder, manifest, encoder)
    linker = Linker(cut, DenseSearch(index), name_table, fingerprint=manifest.fingerprint)
    together = [mention for labelled in sets.values() for mention in labelled]
    return {
        "megabytes": round(sum(file.bytes for file in manifest.files.values()) / 1e6, 1),
        "names": len(name_table),
        "recall@10": manifest.details["recall@10"],
        "milliseconds_per_mention": _milliseconds(index, cut, together),
        "link": {name: accuracy(linker, labelled) for name, labelled in {"all": together, **sets}.items()},
        "dense": accuracy(linker, together, exact=False),
        "inverted": accuracy(linker, inverted),
    }


def accuracy(linker: Linker, mentions: Sequence[LabelledMention], *, exact: bool = True) -> dict[str, float]:
    """Accuracy at 1 and 5 in percent."""
    answers = linker.link([mention.text for mention in mentions], k=5, settings=LinkSettings(exact=exact))
    right = [
        [candidate.concept_id in mention.concept_ids for candidate in candidates]
        for mention, candidates in zip(mentions, answers, strict=True)
    ]
    first, fifth = (100 * np.mean([any(row[:k]) for row in right]) for k in (1, 5))
    return {"mentions": len(mentions), "acc@1": round(float(first), 2), "acc@5": round(float(fifth), 2)}


def loss(full: Mapping[str, Any], layout: Mapping[str, Any], metric: str) -> float:
    """Loss of accuracy of a layout in points, as a mean over the benchmarks."""
    return round(
        float(np.mean([full["link"][name][metric] - layout["link"][name][metric] for name in SETS])), 2
    )


def print_table(figures: Mapping[str, dict[str, Any]]) -> None:
    titles = f"{'link @1':>9}{'@5':>7}{'loss @1':>9}{'@5':>7}{'dense @1':>10}{'inverted @1':>13}"
    print(f"{'layout':<42}{'MB':>6}{'ms':>6}{titles}")
    for name, row in figures.items():
        all_ = row["link"]["all"]
        print(
            f"{name:<42}{row['megabytes']:>6.1f}{row['milliseconds_per_mention']:>6.1f}{all_['acc@1']:>9.2f}"
            f"{all_['acc@5']:>7.2f}{row['loss']['acc@1']:>9.2f}{row['loss']['acc@5']:>7.2f}"
            f"{row['dense']['acc@1']:>10.2f}{row['inverted']['acc@1']:>13.2f}"
        )


def show(_name: str, done: int, total: int) -> None:
    print(f"\r{done:,} of {total:,} names", end="", file=sys.stderr, flush=True)


def _milliseconds(index: Index, encoder: Encoder, mentions: Sequence[LabelledMention]) -> float:
    vectors = encoder.encode([mention.text for mention in mentions[:TIMED]])
    start = time.perf_counter()
    for vector in vectors:
        index.search(vector[np.newaxis], 10)
    return round((time.perf_counter() - start) / len(vectors) * 1000, 1)


if __name__ == "__main__":
    main()
