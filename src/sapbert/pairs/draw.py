"""Draw positive pairs from a vocabulary: two names of one concept.

Names are folded. Names of a concept with the same folded text would train nothing, so only the first is kept;
a concept left with one name has no pair. Negatives are not made here: they are the names of other concepts in
a batch. For them, names whose text belongs to several concepts are recorded (`Pairs.homonyms`).

The vocabulary is processed part by part, so memory does not grow with it, except for a 64-bit hash per name,
by which equal texts of different concepts are found. Two different texts with the same hash (odds of one in a
hundred thousand over all of UMLS) are only not used as negatives of each other.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import NamedTuple, Self

import numpy as np
import polars as pl
from numpy.typing import NDArray

from sapbert.arrays import ArrayWriter, TextsWriter
from sapbert.artifacts import Draft, create
from sapbert.errors import ConfigError, SapbertError
from sapbert.pairs.artifact import KIND, Pairs
from sapbert.pairs.sampling import draw, repeat
from sapbert.pairs.settings import Languages, PairSettings
from sapbert.parallel import ordered_map
from sapbert.progress import Progress, no_progress
from sapbert.vocab.text_columns import (
    append_texts,
    fold_tidy_names,
    is_first_in_group,
    possibly_repeated_rows,
)
from sapbert.vocab.vocabulary import Vocabulary


class Names(NamedTuple):
    """The distinct folded names of several complete concepts."""

    texts: pl.Series
    concepts: NDArray[np.int64]
    """Number of the concept of each name, from 0."""
    languages: NDArray[np.int64]
    """A number per name that changes when the language changes."""
    ids: pl.Series
    """The id of each concept."""
    hashes: NDArray[np.uint64]
    """Hash of each text."""
    weights: NDArray[np.float64] | None = None
    """Number of times that pairs with each name are drawn; None means once."""

    @classmethod
    def of(cls, concept_ids: pl.Series, texts: pl.Series) -> Self:
        """Number the concepts of distinct names; rows of a concept must be contiguous."""
        concepts = concept_ids.rle_id().to_numpy().astype(np.int64)
        starts = np.flatnonzero(np.diff(concepts, prepend=-1))
        hashes = texts.hash().to_numpy()
        return cls(texts, concepts, np.zeros_like(concepts), concept_ids.gather(starts), hashes)


def draw_pairs(
    vocabulary: Vocabulary,
    target: Path,
    settings: PairSettings,
    *,
    overwrite: bool = False,
    progress: Progress = no_progress,
) -> Pairs:
    """Write the pairs artifact of a vocabulary to `target` and open it."""
    parts = vocabulary.parts()
    _refuse_unknown_sources(vocabulary, settings.weights)
    with create(target, overwrite=overwrite) as draft:
        with PairsWriter(draft) as writer:
            work = partial(_draw_part, settings=settings)
            for done, (names, rows) in enumerate(ordered_map(work, parts), 1):
                writer.add(names, rows)
                progress("pairs", done, len(parts))
        if not writer.pairs:
            raise SapbertError(f"{vocabulary.path}: no concept has two names that could make a pair")
        inputs = {vocabulary.path.name: {"fingerprint": vocabulary.fingerprint}}
        draft.seal(KIND, settings=asdict(settings), inputs=inputs, counts=writer.counts())
    return Pairs.open(target, verify=False)


def _refuse_unknown_sources(vocabulary: Vocabulary, weights: Mapping[str, float]) -> None:
    if weights:
        names = (
            pl.scan_parquet(vocabulary.parts()).select(pl.col("source").cast(pl.String).unique()).collect()
        )
        known = sorted(names["source"].drop_nulls())
        for source in weights:
            if source not in known:
                raise ConfigError(
                    f"{vocabulary.path}: no name is from the source {source}, only from {', '.join(known)}"
                )


def _draw_part(part: Path, settings: PairSettings) -> tuple[Names, NDArray[np.int64]]:
    """Return the names of a part of the vocabulary and the pairs drawn from them. Thread-safe."""
    names = _distinct_names(part, settings)

    def keys(concepts: NDArray[np.int64]) -> NDArray[np.uint64]:
        digests = (hashlib.sha256(curie.encode()).digest()[:8] for curie in names.ids.gather(concepts))
        return np.frombuffer(b"".join(digests), "<u8")

    rows = draw(
        names.concepts,
        names.languages,
        keys=keys,
        rule=settings.languages,
        limit=settings.limit,
        seed=settings.seed,
    )
    if names.weights is not None:
        times = names.weights[rows].max(axis=1)
        rows = repeat(rows, names.concepts[rows[:, 0]], times, keys=keys, seed=settings.seed)
    return names, rows


def _distinct_names(part: Path, settings: PairSettings) -> Names:
    """Fold the names of complete concepts and keep the distinct names of each concept, in their order."""
    columns = {
        "concept_id": True,
        "name": True,
        "language": settings.languages is not Languages.ANY,
        "source": bool(settings.weights),
    }
    frame = pl.read_parquet(part, columns=[column for column, needed in columns.items() if needed])
    texts = fold_tidy_names(frame["name"])
    hashes = texts.hash().to_numpy()
    concepts = frame["concept_id"].rle_id().to_numpy().astype(np.int64)
    kept = is_first_in_group(texts, hashes, concepts) & (texts != "").to_numpy()
    rows = np.flatnonzero(kept)
    begins = np.diff(concepts[rows], prepend=-1) != 0
    languages = np.zeros(len(rows), np.int64)
    if columns["language"]:
        languages = frame["language"].filter(kept).rle_id().to_numpy().astype(np.int64)
    weights = None
    if settings.weights:
        # A name of several sources has the largest of their weights.
        each = frame["source"].cast(pl.String).replace_strict(settings.weights, default=1.0)
        named = pl.DataFrame({"concept": concepts, "text": texts, "weight": each})
        largest = named.select(pl.col("weight").max().over("concept", "text")).to_series()
        weights = largest.to_numpy()[rows]
    return Names(
        texts=texts.filter(kept),
        concepts=np.cumsum(begins) - 1,
        languages=languages,
        ids=frame["concept_id"].gather(rows[begins]),
        hashes=hashes[rows],
        weights=weights,
    )


class PairsWriter:
    """Writes the arrays of a pairs artifact part by part."""

    def __init__(self, draft: Draft) -> None:
        self._draft = draft
        self._path = draft.path
        self._stack = ExitStack()
        self._hashes: list[NDArray[np.uint64]] = []
        self.homonyms = 0

    def __enter__(self) -> Self:
        def array(name: str, dtype: type[np.generic], width: int | None = None) -> ArrayWriter:
            return self._stack.enter_context(ArrayWriter(self._path / f"{name}.npy", dtype, width))

        def texts(data: str, offsets: str) -> TextsWriter:
            return self._stack.enter_context(
                TextsWriter(self._path / f"{data}.npy", self._path / f"{offsets}.npy")
            )

        self._names, self._ids = texts("names", "offsets"), texts("concept_ids", "concept_offsets")
        self._concepts = array("concepts", np.int32)
        self._pairs = array("pairs", np.int32, 2)
        return self

    def __exit__(self, *error: object) -> None:
        if error[0] is None:
            self._write_homonyms()
        self._stack.__exit__(*error)  # type: ignore[arg-type]  # the three arguments of __exit__

    @property
    def concepts(self) -> int:
        """Number of concepts written so far."""
        return self._ids.rows

    @property
    def pairs(self) -> int:
        """Number of pairs written so far."""
        return self._pairs.rows

    def add(self, names: Names, pairs: NDArray[np.int64]) -> None:
        """Append complete concepts and pairs of their names, as row numbers in `names`."""
        first_name = self._names.rows
        if first_name + len(names.texts) >= 2**31:
            raise SapbertError("a pairs artifact has at most 2**31 names; use a smaller vocabulary")
        self._concepts.append(_shifted(names.concepts, self.concepts))
        self._pairs.append(_shifted(pairs, first_name))
        append_texts(names.texts, self._names)
        append_texts(names.ids, self._ids)
        self._hashes.append(names.hashes)
        for name in ("names", "offsets", "concepts", "pairs"):
            self._draft.sync_in_background(self._path / f"{name}.npy")

    def counts(self) -> dict[str, int]:
        """Return counts for the manifest."""
        return {
            "pairs": self.pairs,
            "names": self._names.rows,
            "concepts": self.concepts,
            "ambiguous names": self.homonyms,
        }

    def _write_homonyms(self) -> None:
        hashes = np.concatenate([np.empty(0, np.uint64), *self._hashes])
        self._hashes.clear()
        rows = possibly_repeated_rows(hashes)
        hashes = hashes[rows]
        order = np.argsort(hashes)
        starts = np.flatnonzero(np.diff(hashes[order], prepend=~hashes[order[:1]]))
        sizes = np.diff(starts, append=len(order))
        order, sizes = order[np.repeat(sizes > 1, sizes)], sizes[sizes > 1]
        first = np.minimum.reduceat(order, np.cumsum(sizes) - sizes)
        # Groups are numbered by their first row, so that the numbers do not depend on the hash function.
        begins = np.zeros(len(rows), np.bool_)
        begins[first] = True
        groups = np.full(len(rows), -1)
        groups[order] = np.repeat(np.cumsum(begins)[first] - 1, sizes)
        self.homonyms = len(order)
        with ArrayWriter(self._path / "homonyms.npy", np.int32, 2) as homonyms:
            homonyms.append(np.stack([rows, groups], axis=1)[groups >= 0])


def _shifted(numbers: NDArray[np.int64], by: int) -> NDArray[np.int32]:
    """Return `numbers + by` in one pass over memory; the sum must fit in 32 bits."""
    return np.add(numbers, by, dtype=np.int32, casting="unsafe")
