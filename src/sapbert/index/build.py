"""Build an index artifact from a vocabulary and an encoder: encode in chunks, assemble, measure, seal.

Memory holds one chunk, whatever the size (but see `index.name_table_writer`). Most time is spent encoding, so
no name is encoded twice: not after an interrupt (`index.chunks`), and not if the older index `update` has it.
Its vectors are reused only if the result is the same as encoding. An index with fewer dimensions than the
encoder then uses the projection of the older index; otherwise the projection is computed from a sample of
names, which is encoded first in every run and takes some seconds.

Recall is measured on names of the index, each against all others: the fraction of the ten nearest names in
full precision that a search finds. Unless the kind is flat, the number of candidates is doubled until recall
no longer increases.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from sapbert.artifacts import Manifest, create
from sapbert.encoder.pca import PortableEncoder, ProjectedEncoder, principal_axes, project
from sapbert.errors import ConfigError, SapbertError
from sapbert.index.chunks import Chunk, ChunkStore, chunk_folder
from sapbert.index.folder import (
    AXES,
    ENCODER,
    ENTRIES,
    KIND,
    VOCABULARY,
    encoder_of_index,
    open_index,
    open_search,
)
from sapbert.index.lexicon.lexicon import LEXICON, write_lexicon
from sapbert.index.name_table import NameTable
from sapbert.index.name_table_writer import write_name_table
from sapbert.index.recall import SAMPLE_SIZE, Neighbours, Sample, choose_candidates, merge_neighbours
from sapbert.index.settings import IndexSettings, Kind, Precision
from sapbert.index.sparse import SPARSE, SparseSettings, require_scipy, write_sparse
from sapbert.index.vectors import Vectors, VectorWriter, evenly_spaced_rows, quantize, require_storable
from sapbert.progress import Progress, no_progress
from sapbert.protocols import Encoder
from sapbert.resumable import full_disk_explained
from sapbert.vocab.vocabulary import Vocabulary

ROWS_PER_CHUNK = 4_096
"""Names per chunk, after which an interrupted build can be resumed: half a minute on two cores."""
AXES_SAMPLE_SIZE = 4_096
"""Names from which the projection is computed; four times as many hardly keep more neighbours."""

OnForecast = Callable[[int, float], None]
"""Called before encoding with the number of names to encode and the expected names per second."""


def build_index(
    vocabulary: Vocabulary,
    encoder: PortableEncoder,
    target: Path,
    settings: IndexSettings,
    *,
    carry_encoder: bool = True,
    update: Path | None = None,
    resume: bool = False,
    overwrite: bool = False,
    progress: Progress = no_progress,
    on_forecast: OnForecast | None = None,
) -> Manifest:
    """Write the index of a vocabulary to `target`; return its manifest.

    The encoder is copied into the index unless `carry_encoder` is False; then the caller that opens the index
    must supply the encoder. Names that the older index `update` has are not encoded again.
    """
    settings = replace(settings, hybrid=bool(settings.hybrid))
    if settings.hybrid:
        require_scipy()
    dimension = settings.dimensions or encoder.dimension
    if dimension > encoder.dimension:
        raise ConfigError(f"this encoder has only {encoder.dimension} dimensions, got dimensions={dimension}")
    with (
        chunk_folder(target, resume=resume, overwrite=overwrite) as chunks,
        full_disk_explained(chunks.parent, f"give --resume to continue from {chunks.name}"),
        create(target, overwrite=overwrite) as draft,
    ):
        (draft.path / ENTRIES).mkdir()
        name_table = write_name_table(vocabulary, draft.path / ENTRIES, inverted=settings.inverted)
        kind, precision = settings.resolved(len(name_table))
        require_storable(dimension, precision)
        older = None if update is None else _OlderIndex.open(update, encoder, precision, dimension)
        encoder = _project(encoder, dimension, name_table, older)
        store = ChunkStore(chunks, _identity(vocabulary, encoder, precision, settings), resume=resume)
        sample, rate = _timed_sample(name_table, encoder)
        work = _Encoding(name_table, encoder, precision, sample, older)
        if on_forecast is not None:
            on_forecast(work.missing(store), rate)
        work.run(store, progress)
        measured = _measure(draft.path, kind, work.sample, work.assemble(store, draft.path))
        (draft.path / LEXICON).mkdir()
        write_lexicon(name_table, draft.path / LEXICON, progress=progress)
        if settings.hybrid:
            (draft.path / SPARSE).mkdir()
            write_sparse(name_table.folded, draft.path / SPARSE, SparseSettings(), progress=progress)
        if carry_encoder:
            encoder.copy_to(draft.path / ENCODER)
        return draft.seal(
            KIND,
            settings={name: value for name, value in asdict(settings).items() if value is not None},
            inputs={
                VOCABULARY: {"name": vocabulary.path.name, "fingerprint": vocabulary.fingerprint},
                ENCODER: {"fingerprint": encoder.fingerprint},
            },
            counts={"names": len(name_table), "concepts": len(name_table.concepts)},
            details={"kind": kind, "precision": precision, "dimension": encoder.dimension, **measured},
        )


def _timed_sample(name_table: NameTable, encoder: Encoder) -> tuple[Sample, float]:
    """Encode the names that recall is measured on; return them and the names per second."""
    start = perf_counter()
    sample = Sample.of(name_table, encoder)
    return sample, len(sample.rows) / max(perf_counter() - start, 1e-9)


def _identity(
    vocabulary: Vocabulary, encoder: Encoder, precision: Precision, settings: IndexSettings
) -> dict[str, Any]:
    """Return what must be equal for one build to continue with the chunks of another."""
    return {
        "vocabulary": vocabulary.fingerprint,
        "encoder": encoder.fingerprint,
        "precision": precision.value,
        "dimension": encoder.dimension,
        "axes": sha256(encoder.axes.tobytes()).hexdigest() if isinstance(encoder, ProjectedEncoder) else None,
        "inverted": settings.inverted,
        "rows": ROWS_PER_CHUNK,
        "sample": SAMPLE_SIZE,
    }


class _OlderIndex(NamedTuple):
    """An older index whose vectors are reused."""

    name_table: NameTable
    vectors: Vectors
    encoder: PortableEncoder
    """An encoder whose vectors are comparable with these."""

    @classmethod
    def open(cls, path: Path, encoder: PortableEncoder, precision: Precision, dimension: int) -> Self:
        _, name_table, manifest = open_index(path)
        compatible = encoder_of_index(path, manifest, encoder)
        vectors = Vectors.open(path)
        if vectors.precision not in (precision, Precision.FP32):
            raise ConfigError(
                f"{path} stores vectors as {vectors.precision}, which cannot become {precision}; "
                f"give --precision {vectors.precision} or leave out --update"
            )
        exact = compatible is encoder and vectors.precision is Precision.FP32
        if vectors.dimension != dimension and not exact:
            raise ConfigError(
                f"{path} stores {vectors.dimension} dimensions as {vectors.precision}, which cannot become "
                f"{dimension}; give --dimensions {vectors.dimension} or leave out --update"
            )
        return cls(name_table, vectors, compatible)


def _project(
    encoder: PortableEncoder, dimension: int, name_table: NameTable, older: _OlderIndex | None
) -> PortableEncoder:
    """Return the encoder, projected if needed: as in the older index, or to axes of the names."""
    if older is not None and older.vectors.dimension == dimension:
        return older.encoder
    if dimension == encoder.dimension:
        return encoder
    names = name_table.folded.take(evenly_spaced_rows(len(name_table), AXES_SAMPLE_SIZE))
    return ProjectedEncoder(encoder, principal_axes(_encoded(encoder, names), dimension))


@dataclass(frozen=True, slots=True)
class _Encoding:
    """Encodes the names of an index, chunk by chunk."""

    name_table: NameTable
    encoder: Encoder
    precision: Precision
    sample: Sample
    older: _OlderIndex | None

    def missing(self, store: ChunkStore) -> int:
        """Count the names of the chunks that are not in `store`."""
        return sum(stop - start for number, start, stop in self._chunks() if not store.has(number))

    def run(self, store: ChunkStore, progress: Progress) -> None:
        """Encode every chunk that is not in `store`."""
        for number, start, stop in self._chunks():
            if not store.has(number):
                store.save(number, self._chunk(start, stop))
            progress("names", stop, len(self.name_table))

    def assemble(self, store: ChunkStore, folder: Path) -> Neighbours:
        """Write the vectors of all chunks to `folder`; return the exact neighbours of the sample."""
        near = []
        if isinstance(self.encoder, ProjectedEncoder):
            np.save(folder / AXES, self.encoder.axes)
        with VectorWriter(folder, self.encoder.dimension, self.precision) as writer:
            for number, _, _ in self._chunks():
                chunk = store.load(number)
                writer.append(chunk.vectors)
                near.append(chunk.near)
        return merge_neighbours(near)

    def _chunks(self) -> Iterator[tuple[int, int, int]]:
        """Yield number, first row and end of each chunk."""
        for number, start in enumerate(range(0, len(self.name_table), ROWS_PER_CHUNK)):
            yield number, start, min(start + ROWS_PER_CHUNK, len(self.name_table))

    def _chunk(self, start: int, stop: int) -> Chunk:
        vectors = self._vectors(self.name_table.folded.span(start, stop))
        return Chunk(quantize(vectors, self.precision), self.sample.nearest(vectors, start))

    def _vectors(self, names: list[str]) -> NDArray[np.float32]:
        """Reuse older vectors and encode the others."""
        if self.older is None:
            return _encoded(self.encoder, names)
        rows = self.older.name_table.rows_of(names)
        vectors = np.empty((len(names), self.encoder.dimension), np.float32)
        floats = self.older.vectors.floats(rows[rows >= 0])
        if isinstance(self.encoder, ProjectedEncoder) and self.older.encoder is not self.encoder:
            floats = project(floats, self.encoder.axes)
        vectors[rows >= 0] = floats
        new = np.flatnonzero(rows < 0).tolist()
        if new:
            vectors[new] = _encoded(self.encoder, [names[number] for number in new])
        return vectors


def _encoded(encoder: Encoder, names: list[str]) -> NDArray[np.float32]:
    vectors = encoder.encode(names)
    # One NaN would make the projection and the mean NaN, and with them all vectors.
    bad = np.flatnonzero(~np.isfinite(vectors).all(axis=1))
    if len(bad):
        raise SapbertError(f"the encoder returned NaN for {names[bad[0]]!r}; is it damaged?")
    return vectors


def _measure(folder: Path, kind: Kind, sample: Sample, truth: Neighbours) -> dict[str, float]:
    """Measure recall; choose the number of candidates, and for kind ann write the codes."""
    if kind is Kind.FLAT:
        return {"recall@10": sample.recall(open_search(folder, kind, 0), truth)}
    if kind is Kind.ANN:
        from sapbert.index.ann import write_codes

        write_codes(folder)
    candidates, recall = choose_candidates(
        lambda number: sample.recall(open_search(folder, kind, number), truth)
    )
    return {"recall@10": recall, "candidates": candidates}
