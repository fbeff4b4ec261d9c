"""Build the artifacts bundled with the package: encoders, index and calibration.

    python scripts/build_vocabulary.py … -o src/sapbert/defaults/vocabulary
    python scripts/build_defaults.py --encoder FLASH --open-mini ENCODER -o src/sapbert/defaults
    python scripts/build_fusion.py … --defaults src/sapbert/defaults

FLASH was written by `scripts/build_flash.py`, ENCODER by `scripts/build_encoder.py`; only its int8 variant is
bundled. The last script fits the ranker and the calibration. `--mentions` fits a calibration without a
ranker on labelled mentions instead.

The same files give the same index on the same kind of processor. Encoding takes minutes; an interrupted run
is continued. A README in the encoder folder of the target is kept; that of the index is written by this
script.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from pathlib import Path

from sapbert.artifacts import Manifest, create, load_manifest
from sapbert.defaults import CALIBRATION, OPEN_MINI, VARIABLE
from sapbert.encoder.exported import read_exported
from sapbert.encoder.flash.encoder import FLASH
from sapbert.encoder.onnx import Variant
from sapbert.encoder.open import open_exported
from sapbert.index.build import build_index
from sapbert.index.settings import IndexSettings, Kind, Precision
from sapbert.linking.calibration.fit import calibrate
from sapbert.linking.linker import Linker
from sapbert.linking.settings import CalibrateSettings
from sapbert.mentions import read_labelled_mentions
from sapbert.vocab.input_files import InputReader
from sapbert.vocab.vocabulary import Vocabulary

CARD = "README.md"
INDEX_CARD = """# The default index: MeSH, encoded

{names:,} names of {concepts:,} concepts of the default vocabulary, encoded by the default encoder, which is
beside this folder: {dimension} dimensions in {precision}, projected by PCA on these names (`axes.npy`). The
signs of a mention's vector are compared with all of them, and the vectors of the nearest. Names such as
`Infarction, Myocardial` are left out if the concept
also has the name `Myocardial Infarction`.

- Encoder: `{encoder}`. Vocabulary: `{vocabulary}`. Licence and credits: those of both.
- `benchmarks/default_index.py` measures what reduced dimensions and precision cost in accuracy.
- Fingerprint: `{fingerprint}`. Built on {created} by `scripts/build_defaults.py`.
- `../{calibration}`: the calibration, fitted on labelled mentions; it lists them and their accuracy.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument(
        "--encoder", type=Path, required=True, help="Written by `sapbert flash` or `sapbert export`."
    )
    parser.add_argument("--open-mini", type=Path, help="Second encoder, written by `sapbert export`.")
    parser.add_argument(
        "--mentions", type=Path, action="append", default=[], help="Labelled mentions for the calibration."
    )
    parser.add_argument("--prefix", default="mesh", help="Prefix of identifiers in --mentions without one.")
    parser.add_argument("--dimensions", type=int, default=128, help="Stored dimensions per vector.")
    parser.add_argument(
        "--precision", type=Precision, default=Precision.INT4, help="Precision of the stored vectors."
    )
    parser.add_argument("--out", "-o", type=Path, required=True)
    arguments = parser.parse_args()
    build_encoder(arguments.encoder, arguments.out / "encoder")
    if arguments.open_mini:
        build_encoder(arguments.open_mini, arguments.out / OPEN_MINI)
    build_default_index(arguments.out, arguments.dimensions, arguments.precision)
    if arguments.mentions:
        build_calibration(arguments.out, arguments.mentions, arguments.prefix)


def build_encoder(exported: Path, target: Path) -> Manifest:
    """Copy a flash encoder, or the int8 variant of a transformer, and its origin from the manifest."""
    origin = load_manifest(exported, kind="encoder")
    card = (target / CARD).read_bytes() if (target / CARD).is_file() else None
    with create(target, overwrite=True) as draft:
        variant: Variant | None = None if read_exported(exported).get("kind") == FLASH else "int8"
        open_exported(exported, variant=variant).copy_to(draft.path)
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


def build_default_index(folder: Path, dimensions: int, precision: Precision) -> Manifest:
    """Encode the vocabulary in `folder` with the encoder in it."""
    settings = IndexSettings(kind=Kind.SIGNS, precision=precision, dimensions=dimensions, inverted=False)
    manifest = build_index(
        Vocabulary.open(folder / "vocabulary"),
        open_exported(folder / "encoder"),
        folder / "index",
        settings,
        carry_encoder=False,
        resume=True,
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
    (folder / "index" / CARD).write_text(card, encoding="utf-8")
    return manifest


def build_calibration(folder: Path, tables: Sequence[Path], prefix: str) -> None:
    """Fit the calibration of the default index on labelled mentions."""
    target = folder / CALIBRATION
    target.unlink(missing_ok=True)  # a calibration of another index would be an error
    os.environ[VARIABLE] = str(folder)
    labelled = [
        mention for table in tables for mention in read_labelled_mentions(table, InputReader(), prefix=prefix)
    ]
    fitted = calibrate(Linker.open(), labelled, CalibrateSettings())
    fitted.write(target)
    print(f"right {fitted.report['right']:.1%} of {fitted.report['mentions']:,} mentions -> {target}")


if __name__ == "__main__":
    main()
