"""Search by character n-grams with tf-idf weights, for hybrid indexes (extra `hybrid`).

The cosines are those of scikit-learn's `TfidfVectorizer(analyzer="char", ngram_range=(1, 2))`, except for
names that repeat an n-gram more than 255 times. The files contain the n-gram numbers and counts of each name,
in row order; they are mapped and read in blocks, so a batch of mentions costs one scan. There is no inverted
index because a single character occurs in half of all names: the posting lists would be as long, and
scattered. scipy multiplies a block with a batch ten times faster than numpy sums such lists.

| file | type | what |
|---|---|---|
| `ngrams.npy` | int64 | the n-grams, 21 bits per character, sorted; their positions are their numbers |
| `idf.npy` | float32 (n-grams) | inverse document frequency, smoothed |
| `offsets.npy` | int64 (rows + 1) | where the n-grams of each row start |
| `numbers.npy`, `counts.npy` | uint16 or uint32, uint8 | the n-grams of a row and their counts |
| `scales.npy` | float32 (rows) | 1 / length of the vector of a row |
| `settings.json` | | lengths of the shortest and the longest n-gram |
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sapbert.arrays import ArrayWriter, Offsets, Texts, map_array, map_numbers, map_offsets, require_within
from sapbert.errors import ConfigError, MissingExtraError
from sapbert.progress import Progress, no_progress

SPARSE = "sparse"
"""Folder of these files in an index artifact."""
_BITS = 21
"""Bits per character: enough for all of Unicode, and three characters fit into 64 bits."""
_LARGEST_COUNT = 255
_LARGEST_IDF = 64
"""More than 1 + the logarithm of any number of names."""
_ROWS, _MENTIONS = 16_384, 64
"""Names and mentions multiplied at a time: 4 MB of scores, which fit into the processor cache."""
_MAX_WEIGHTS = 16 << 20
"""Most numbers in the table of a batch: scripts with thousands of characters have millions of n-grams."""
_SETTINGS = "settings.json"


@dataclass(frozen=True, slots=True)
class SparseSettings:
    """Lengths of the n-grams that are counted."""

    shortest: int = 1
    longest: int = 2

    def __post_init__(self) -> None:
        if not 1 <= self.shortest <= self.longest <= 3:
            raise ConfigError(f"n-grams have 1 to 3 characters, got {self.shortest} to {self.longest}")


class NgramCounts(NamedTuple):
    """The n-grams of some texts, as keys or numbers, and their counts, text by text."""

    offsets: NDArray[np.int64]
    """Where each text starts.  # (texts + 1,)"""
    ngrams: NDArray[np.int64]
    counts: NDArray[np.float32]


def write_sparse(
    names: Texts,
    folder: Path,
    settings: SparseSettings,
    *,
    progress: Progress = no_progress,
) -> None:
    """Write the n-grams of folded `names` to `folder`.

    Two passes over the names are needed, because the frequency of an n-gram is known after the first.
    """
    require_scipy()
    ngrams, frequency = _document_frequencies(_spans(names), settings)
    idf = np.log((1 + len(names)) / (1 + frequency)) + 1
    np.save(folder / "ngrams.npy", ngrams)
    np.save(folder / "idf.npy", idf.astype(np.float32))
    (folder / _SETTINGS).write_text(json.dumps(asdict(settings)) + "\n", encoding="utf-8")
    number_type = np.uint16 if len(ngrams) <= np.iinfo(np.uint16).max else np.uint32
    with (
        ArrayWriter(folder / "offsets.npy", np.int64) as offsets,
        ArrayWriter(folder / "numbers.npy", number_type) as numbers,
        ArrayWriter(folder / "counts.npy", np.uint8) as counts,
        ArrayWriter(folder / "scales.npy", np.float32) as scales,
    ):
        offsets.append(np.zeros(1, np.int64))
        for span in _spans(names):
            counted = _to_numbers(_count_ngrams(span, settings), ngrams)
            offsets.append(counted.offsets[1:] + numbers.rows)
            numbers.append(counted.ngrams)
            counts.append(counted.counts)
            scales.append(_scales(counted, idf))
            progress("spelling", scales.rows, len(names))


@dataclass(frozen=True, slots=True)
class SparseIndex:
    """Finds the names that share the most character n-grams with a mention, weighted by tf-idf."""

    settings: SparseSettings
    ngrams: NDArray[np.int64]
    idf: NDArray[np.float32]
    offsets: Offsets
    numbers: NDArray[np.uint16] | NDArray[np.uint32]
    counts: NDArray[np.uint8]
    scales: NDArray[np.float32]

    @classmethod
    def open(cls, folder: Path) -> SparseIndex:
        """Map the files written by `write_sparse`."""
        require_scipy()
        settings = SparseSettings(**json.loads((folder / _SETTINGS).read_text(encoding="utf-8")))
        ngrams = map_array(folder / "ngrams.npy", np.int64, shape=(None,))
        counts = map_array(folder / "counts.npy", np.uint8, shape=(None,))
        scales = map_array(folder / "scales.npy", np.float32, shape=(None,))
        require_within(folder / "scales.npy", scales, 0, 1)
        idf = map_array(folder / "idf.npy", np.float32, shape=(len(ngrams),))
        require_within(folder / "idf.npy", idf, 1, _LARGEST_IDF)
        return cls(
            settings,
            ngrams=ngrams,
            idf=idf,
            offsets=map_offsets(folder / "offsets.npy", rows=len(scales), end=len(counts)),
            numbers=map_numbers(
                folder / "numbers.npy", np.uint16, np.uint32, rows=len(counts), below=len(ngrams)
            ),
            counts=counts,
            scales=scales,
        )

    def __len__(self) -> int:
        return len(self.scales)

    def search(
        self, mentions: Sequence[str], k: int, *, allowed: NDArray[np.bool_] | None = None
    ) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Return cosines, best first, and rows of the names nearest to folded `mentions`.

        Equal cosines are in order of rows; only names that share an n-gram are found; -1 where there are
        fewer than `k`. `allowed` says which rows may be returned.  # (mentions, k), (mentions, k)
        """
        scores = np.zeros((len(mentions), k), np.float32)
        rows = np.full((len(mentions), k), -1, np.int64)
        size = max(1, min(_MENTIONS, _MAX_WEIGHTS // max(1, len(self.ngrams))))
        for first in range(0, len(mentions), size):
            batch = mentions[first : first + size]
            for at, best in enumerate(self._best(batch, k, allowed), start=first):
                count = min(k, len(best.rows))
                scores[at, :count], rows[at, :count] = best.scores[:k], best.rows[:k]
        return scores, rows

    def compare(self, mentions: Sequence[str], rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return the cosine of each folded mention with each of its `rows`; 0 if a row is -1.

        # rows and result: (mentions, k)
        """
        scores = np.zeros(rows.shape, np.float32)
        for at, (mention, mention_rows) in enumerate(zip(mentions, rows, strict=True)):
            known = np.flatnonzero(mention_rows >= 0)
            weights = self._weigh([mention])[:, 0]
            for place, row in zip(known, mention_rows[known], strict=True):
                here = slice(*self.offsets[row : row + 2])
                scores[at, place] = weights[self.numbers[here]] @ self.counts[here] * self.scales[row]
        return scores

    def _best(self, mentions: Sequence[str], k: int, allowed: NDArray[np.bool_] | None) -> list[_Best]:
        """Return the best rows of each mention, block by block."""
        weights = self._weigh(mentions)
        best = [_Best(np.empty(0, np.float32), np.empty(0, np.int64)) for _ in mentions]
        for start in range(0, len(self), _ROWS):
            stop = min(start + _ROWS, len(self))
            offsets = self.offsets[start : stop + 1]
            piece = slice(offsets[0], offsets[-1])
            scores = _multiply(offsets - offsets[0], self.numbers[piece], self.counts[piece], weights)
            scores *= self.scales[start:stop, np.newaxis]
            if allowed is not None:
                scores *= allowed[start:stop, np.newaxis]
            floors = np.array([one.floor(k) for one in best], np.float32)
            owners, rows = np.nonzero((scores > floors).T)
            cuts = np.searchsorted(owners, np.arange(len(mentions) + 1))
            for at in np.unique(owners):
                better = rows[cuts[at] : cuts[at + 1]]
                best[at] = best[at].merge(scores[better, at], better + start, k)
        return best

    def _weigh(self, mentions: Sequence[str]) -> NDArray[np.float32]:
        """Return the weight of each n-gram for each mention.  # (n-grams, mentions)"""
        counted = _to_numbers(_count_ngrams(mentions, self.settings), self.ngrams)
        owner = np.repeat(np.arange(len(mentions)), np.diff(counted.offsets))
        weights = np.zeros((len(self.ngrams), len(mentions)), np.float32)
        # Squared, because names are stored without their idf.
        squares = self.idf[counted.ngrams] ** 2
        weights[counted.ngrams, owner] = counted.counts * squares * _scales(counted, self.idf)[owner]
        return weights


class _Best(NamedTuple):
    """The best rows so far, best first."""

    scores: NDArray[np.float32]
    rows: NDArray[np.int64]

    def floor(self, k: int) -> np.float32:
        """Return the score that a later row must exceed."""
        return self.scores[-1] if len(self.scores) == k else np.float32(0)

    def merge(self, scores: NDArray[np.float32], rows: NDArray[np.int64], k: int) -> _Best:
        """Return the best of these and of `rows`, all of which are later rows."""
        if len(rows) > k:
            # Rows with the score of the k-th are kept, so that the lower row can win below.
            kept = scores >= np.partition(scores, -k)[-k]
            scores, rows = scores[kept], rows[kept]
        scores, rows = np.concatenate([self.scores, scores]), np.concatenate([self.rows, rows])
        order = np.argsort(-scores, kind="stable")[:k]
        return _Best(scores[order], rows[order])


def _multiply(
    offsets: Offsets,
    numbers: NDArray[np.integer[Any]],
    counts: NDArray[np.uint8],
    weights: NDArray[np.float32],
) -> NDArray[np.float32]:
    """Multiply the n-gram counts of names with the weights of mentions.  # (names, mentions)"""
    content = counts.astype(np.float32), numbers.astype(np.int32), offsets.astype(np.int32)
    names = require_scipy().csr_array(content, shape=(len(offsets) - 1, len(weights)))
    scores: NDArray[np.float32] = names @ weights
    return scores


def _spans(names: Texts) -> Iterator[list[str]]:
    return (names.span(start, min(start + _ROWS, len(names))) for start in range(0, len(names), _ROWS))


def _document_frequencies(
    spans: Iterable[Sequence[str]], settings: SparseSettings
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the keys of all n-grams, sorted, and the number of texts that contain each."""
    keys, frequency = np.empty(0, np.int64), np.empty(0, np.int64)
    for span in spans:
        new, times = np.unique(_count_ngrams(span, settings).ngrams, return_counts=True)
        merged, place = np.unique(np.concatenate([keys, new]), return_inverse=True)
        total = np.bincount(place, np.concatenate([frequency, times]), len(merged))
        keys, frequency = merged, total.astype(np.int64)
    return keys, frequency


def _count_ngrams(texts: Sequence[str], settings: SparseSettings) -> NgramCounts:
    """Count the n-grams of each text, as keys in ascending order."""
    lengths = np.array([len(text) for text in texts], np.int64)
    ends = np.cumsum(lengths)
    joined = "".join(texts).encode("utf-32-le", errors="surrogatepass")
    # Characters are numbered from 1, so a shorter n-gram never has the key of a longer one.
    characters = np.frombuffer(joined, np.uint32).astype(np.int64) + 1
    owner = np.repeat(np.arange(len(texts)), lengths)
    left = ends[owner] - np.arange(len(characters))  # characters up to the end of the text
    keys, owners = [], []
    key = np.zeros_like(characters)
    for size in range(1, settings.longest + 1):
        key = key[: len(characters) - size + 1] << _BITS | characters[size - 1 :]
        if size >= settings.shortest:
            inside = left[: len(key)] >= size
            keys.append(key[inside])
            owners.append(owner[: len(key)][inside])
    return _combine_repeats(np.concatenate(keys), np.concatenate(owners), len(texts))


def _combine_repeats(keys: NDArray[np.int64], owners: NDArray[np.int64], texts: int) -> NgramCounts:
    """Combine equal keys of one text."""
    order = np.lexsort((keys, owners))
    keys, owners = keys[order], owners[order]
    new = np.ones(len(keys), np.bool_)
    new[1:] = (keys[1:] != keys[:-1]) | (owners[1:] != owners[:-1])
    first = np.flatnonzero(new)
    counts = np.diff(np.append(first, len(keys)))
    offsets = np.concatenate([[0], np.cumsum(np.bincount(owners[first], minlength=texts))])
    return NgramCounts(offsets, keys[first], np.minimum(counts, _LARGEST_COUNT).astype(np.float32))


def _to_numbers(counted: NgramCounts, ngrams: NDArray[np.int64]) -> NgramCounts:
    """Replace keys by numbers; n-grams that occur in no name are dropped, as in scikit-learn."""
    numbers = np.searchsorted(ngrams, counted.ngrams)
    known = np.zeros(len(numbers), np.bool_)
    inside = numbers < len(ngrams)
    known[inside] = ngrams[numbers[inside]] == counted.ngrams[inside]
    known_before = np.concatenate([[0], np.cumsum(known)])
    return NgramCounts(known_before[counted.offsets], numbers[known], counted.counts[known])


def _scales(counted: NgramCounts, idf: NDArray[Any]) -> NDArray[np.float32]:
    """Return 1 / length of the vector of each text; 0 for a text without n-grams."""
    text = np.repeat(np.arange(len(counted.offsets) - 1), np.diff(counted.offsets))
    squares = np.bincount(text, (counted.counts * idf[counted.ngrams]) ** 2, len(counted.offsets) - 1)
    scales = np.zeros(len(squares), np.float32)
    np.divide(1, np.sqrt(squares), out=scales, where=squares > 0, casting="same_kind")
    return scales


def require_scipy() -> ModuleType:
    """Import scipy, or name the extra that installs it."""
    try:
        import scipy.sparse
    except ImportError:
        raise MissingExtraError("scipy", "hybrid") from None
    module: ModuleType = scipy.sparse
    return module
