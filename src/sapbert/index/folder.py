"""The index artifact: everything that linking needs, in one relocatable folder.

| where | what |
|---|---|
| `entries/` | names, concepts, types (`index.name_table`) |
| `vectors.npy`, `scales.npy` | one vector per name (`index.vectors`) |
| `axes.npy` | the projection, if vectors have fewer dimensions than the encoder (`encoder.pca`) |
| `codes.npy`, `frame.npy`, `mean.npy` | binary codes that select candidates, for kind ann (`index.ann`) |
| `lexicon/` | a hash of the words of each name, to find names in text (`index.lexicon`) |
| `sparse/` | character n-grams of the names, for a hybrid index (`index.sparse`) |
| `encoder/` | the encoder that made the vectors, as ONNX |

Opening compares the checksums of files up to 256 MB and the sizes of larger ones: reading fifteen million
vectors would take longer than linking. Of large files, offsets, row numbers and a few vectors are checked,
because wrong ones would lead to wrong results. Other damage is looked for when something fails
(`damage_explained`); `sapbert show INDEX` compares all checksums.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from sapbert.arrays import map_array, require_within
from sapbert.artifacts import Manifest, load_manifest
from sapbert.encoder.pca import PortableEncoder, ProjectedEncoder
from sapbert.errors import ArtifactError
from sapbert.index.flat import FlatIndex
from sapbert.index.name_table import NameTable
from sapbert.index.settings import Kind
from sapbert.index.signs import SignIndex
from sapbert.index.vectors import Vectors
from sapbert.protocols import Encoder, Index

KIND = "index"
ENTRIES, ENCODER, VOCABULARY = "entries", "encoder", "vocabulary"
AXES = "axes.npy"
SMALL = 1 << 28
"""Largest file whose checksum is compared on opening, in bytes: 20 ms if it is in the page cache."""


def open_index(path: Path, *, threads: int | None = None) -> tuple[Index, NameTable, Manifest]:
    """Open an artifact written by `sapbert index`; `threads` search it, by default one per core."""
    manifest = load_manifest(path, kind=KIND, largest=SMALL)
    name_table = NameTable.open(path / ENTRIES)
    index = open_search(path, Kind(manifest.details["kind"]), manifest.details.get("candidates", 0), threads)
    if not len(index) == len(name_table) == manifest.counts["names"]:
        raise ArtifactError(
            f"{path} is damaged: {len(index)} vectors for {len(name_table)} names; build it again"
        )
    return index, name_table, manifest


def open_search(folder: Path, kind: Kind, candidates: int, threads: int | None = None) -> Index:
    """Open the vectors in `folder`, and the codes if its kind is ann."""
    vectors = Vectors.open(folder)
    if kind is Kind.FLAT:
        return FlatIndex(vectors)
    if kind is Kind.SIGNS:
        return SignIndex(vectors, candidates=candidates)
    # faiss is slow to load and needed only here.
    from sapbert.index.ann import AnnIndex

    return AnnIndex.open(folder, vectors, candidates=candidates, threads=threads)


@contextmanager
def damage_explained(path: Path) -> Iterator[None]:
    """If the block fails in a way that damage could cause, report which file of the index is damaged."""
    try:
        yield
    except (LookupError, ValueError, TypeError, ArithmeticError, MemoryError):
        load_manifest(path, kind=KIND)
        raise


def require_encoder(path: Path, manifest: Manifest, encoder: Encoder) -> None:
    """Refuse an encoder other than the one that made the vectors of the index at `path`."""
    made_by = manifest.inputs[ENCODER]["fingerprint"]
    if encoder.fingerprint != made_by:
        raise ArtifactError(
            f"{path} was made by the encoder {made_by}, not by {encoder.fingerprint}: "
            "their vectors do not compare; make the index again with this encoder"
        )


def encoder_of_index(path: Path, manifest: Manifest, encoder: PortableEncoder) -> PortableEncoder:
    """Return the encoder with the dimensions of the index at `path`: all, or projected to fewer."""
    require_encoder(path, manifest, encoder)
    shape = (encoder.dimension, int(manifest.details["dimension"]))
    if shape[0] == shape[1]:
        return encoder
    # Without this file, an older version of sapbert kept the first dimensions.
    axes = np.eye(*shape, dtype=np.float32)
    if AXES in manifest.files:
        axes = map_array(path / AXES, np.float32, shape=shape)
        require_within(path / AXES, axes, -1, 1)
    return ProjectedEncoder(encoder, axes)
