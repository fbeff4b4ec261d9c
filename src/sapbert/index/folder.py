"""The index artifact: all that linking needs, in one folder that can be moved.

| where | what |
|---|---|
| `entries/` | names, concepts, types (`index.name_table`) |
| `vectors.npy`, `scales.npy` | a vector for each name (`index.vectors`) |
| `axes.npy` | where vectors have fewer dimensions than the encoder's, along which (`encoder.pca`) |
| `codes.npy`, `frame.npy`, `mean.npy` | of kind ann, what finds candidates (`index.ann`) |
| `sparse/` | of a hybrid index, what names are made of (`index.sparse`) |
| `encoder/` | the encoder that made the vectors, as ONNX |

Opening compares the checksums of small files and the sizes of large ones: reading all of fifteen million
vectors would take longer than the linking. Of large ones it looks at what leads astray: offsets, numbers of
other rows, and a few vectors. Damage that none of this finds is looked for when something goes wrong
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
from sapbert.index.vectors import Vectors
from sapbert.protocols import Encoder, Index

KIND = "index"
ENTRIES, ENCODER, VOCABULARY = "entries", "encoder", "vocabulary"
AXES = "axes.npy"
SMALL = 1 << 20
"""Bytes of a file up to which its checksum is compared on opening: a millisecond or two."""


def open_index(path: Path, *, threads: int | None = None) -> tuple[Index, NameTable, Manifest]:
    """Open an artifact written by `sapbert index`; so many `threads` search it, by default one a core."""
    manifest = load_manifest(path, kind=KIND, largest=SMALL)
    name_table = NameTable.open(path / ENTRIES)
    index = open_search(path, Kind(manifest.details["kind"]), manifest.details.get("candidates", 0), threads)
    if not len(index) == len(name_table) == manifest.counts["names"]:
        raise ArtifactError(
            f"{path} is damaged: {len(index)} vectors for {len(name_table)} names; make it again"
        )
    return index, name_table, manifest


def open_search(folder: Path, kind: Kind, candidates: int, threads: int | None = None) -> Index:
    """Open the vectors in `folder`, and the codes if it is of kind ann."""
    vectors = Vectors.open(folder)
    if kind is Kind.FLAT:
        return FlatIndex(vectors)
    # An index that does without faiss should not wait for it to load.
    from sapbert.index.ann import AnnIndex

    return AnnIndex.open(folder, vectors, candidates=candidates, threads=threads)


@contextmanager
def damage_explained(path: Path) -> Iterator[None]:
    """Where the block fails in a way that damage explains, say which file of the index is damaged, if any."""
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
    """Return the encoder as the index at `path` knows it: whole, or along fewer axes."""
    require_encoder(path, manifest, encoder)
    shape = (encoder.dimension, int(manifest.details["dimension"]))
    if shape[0] == shape[1]:
        return encoder
    # Where there is no such file, an older sapbert has taken the dimensions that come first.
    axes = np.eye(*shape, dtype=np.float32)
    if AXES in manifest.files:
        axes = map_array(path / AXES, np.float32, shape=shape)
        require_within(path / AXES, axes, -1, 1)
    return ProjectedEncoder(encoder, axes)
