"""Synthetic names with the token lengths of real names, and a tokenizer for them.

Names are made of word pieces, each a token of the vocabulary. A piece ends in a letter that is never inside a
piece, so the greedy tokenizer finds exactly these pieces. Lengths are those of 210,000 names of open
vocabularies with BERT's tokenizer, truncated at 25, reweighted to the mean of UMLS names, 9.4 tokens.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

from sapbert.arrays import ArrayWriter, Texts, TextsWriter
from sapbert.artifacts import create
from sapbert.pairs.artifact import KIND, Pairs

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
# fmt: off
PER_MILLE = [
    0, 0, 0, 11, 45, 94, 119, 117, 105, 93, 81, 65, 52, 42, 35, 26, 21, 17, 12, 11, 8, 7, 5, 4, 3, 26,
]
# fmt: on
MEAN_TOKENS = 9.4
CONTINUED = 0.45
"""Share of tokens that continue a word."""
NAMES_PER_CONCEPT = 4
_CHUNK = 250_000


class Inventor:
    """Generates names from the word pieces of one vocabulary."""

    def __init__(self, vocabulary: int = 30_522, *, seed: int = 0) -> None:
        self._rng = np.random.default_rng(seed)
        pieces = self._pieces(vocabulary - len(SPECIAL))
        cut = int(len(pieces) * (1 - CONTINUED))
        self.words, self.endings = pieces[:cut], pieces[cut:]
        forms = [*self.words, *(f" {word}" for word in self.words), *self.endings]
        encoded = [form.encode() for form in forms]
        self._data = np.frombuffer(b"".join(encoded), np.uint8)
        self._offsets = np.cumsum([0, *map(len, encoded)])
        self._lengths = _tilted(np.array(PER_MILLE, float), MEAN_TOKENS)

    def tokenizer(self) -> Tokenizer:
        """Return a WordPiece tokenizer with these pieces, configured like BERT's."""
        tokens = [*SPECIAL, *self.words, *(f"##{ending}" for ending in self.endings)]
        numbered = {token: number for number, token in enumerate(tokens)}
        made = Tokenizer(models.WordPiece(numbered, unk_token=SPECIAL[1]))
        made.normalizer = normalizers.BertNormalizer()
        made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        made.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
        return made

    def names(self, count: int) -> Iterator[tuple[bytes, NDArray[np.int64]]]:
        """Yield blocks of names: their concatenated bytes, and the length of each name."""
        for start in range(0, count, _CHUNK):
            yield self._some(min(_CHUNK, count - start))

    def _some(self, count: int) -> tuple[bytes, NDArray[np.int64]]:
        rng, words = self._rng, len(self.words)
        sizes = rng.choice(len(self._lengths), count, p=self._lengths) - 2
        first = np.cumsum(sizes) - sizes
        total = int(sizes.sum())
        # Squared, so that some pieces are frequent, as in real names.
        drawn = rng.random(total) ** 2
        forms = words + (drawn * words).astype(np.int64)
        ending = rng.random(total) < CONTINUED
        forms[ending] = 2 * words + (drawn[ending] * len(self.endings)).astype(np.int64)
        forms[first] = (drawn[first] * words).astype(np.int64)
        lengths = np.diff(self._offsets)[forms]
        moved = np.repeat(self._offsets[forms + 1] - np.cumsum(lengths), lengths)
        return self._data[np.arange(len(moved)) + moved].tobytes(), np.add.reduceat(lengths, first)

    def _pieces(self, count: int) -> list[str]:
        """Distinct strings of two to seven letters, of which only the last is one of six."""
        found: dict[str, None] = {}
        inner, last = np.array(list("abcdefghijklmnopqrst")), np.array(list("uvwxyz"))
        while len(found) < count:
            sizes = self._rng.integers(1, 7, count)
            for size, letters, end in zip(
                sizes, self._rng.choice(inner, (count, 6)), self._rng.choice(last, count), strict=True
            ):
                found["".join(letters[:size]) + end] = None
        return list(found)[:count]


def _tilted(weights: NDArray[np.float64], mean: float) -> NDArray[np.float64]:
    """Reweight lengths exponentially so that their mean is `mean`."""
    lengths, low, high = np.arange(len(weights)), -1.0, 1.0
    for _ in range(60):
        tilt = (low + high) / 2
        chances = weights * np.exp(tilt * lengths)
        chances /= chances.sum()
        low, high = (tilt, high) if chances @ lengths < mean else (low, tilt)
    return chances


def texts(inventor: Inventor, count: int) -> Texts:
    """Return `count` names in memory."""
    parts = list(inventor.names(count))
    data = np.frombuffer(b"".join(part for part, _ in parts), np.uint8)
    return Texts(data, np.concatenate([[0], np.cumsum(np.concatenate([sizes for _, sizes in parts]))]))


def write_pairs(inventor: Inventor, pairs: int, target: Path) -> Pairs:
    """Write a number of pairs: all combinations of the four names of each concept."""
    sides = np.stack(np.triu_indices(NAMES_PER_CONCEPT, 1), axis=1)
    concepts = -(-pairs // len(sides))
    with create(target) as draft:
        with TextsWriter(draft.path / "names.npy", draft.path / "offsets.npy") as names:
            for data, sizes in inventor.names(concepts * NAMES_PER_CONCEPT):
                names.append(data, sizes)
        with TextsWriter(draft.path / "concept_ids.npy", draft.path / "concept_offsets.npy") as ids:
            numbered = [f"x:{number}".encode() for number in range(concepts)]
            ids.append(b"".join(numbered), np.array([len(one) for one in numbered]))
        rows = np.arange(concepts)[:, None, None] * NAMES_PER_CONCEPT + sides
        for name, array, width in (
            ("concepts", np.repeat(np.arange(concepts, dtype=np.int32), NAMES_PER_CONCEPT), None),
            ("pairs", rows.reshape(-1, 2)[:pairs], 2),
            ("homonyms", np.empty((0, 2), np.int32), 2),
        ):
            with ArrayWriter(draft.path / f"{name}.npy", np.int32, width) as writer:
                writer.append(array)
        draft.seal(
            KIND, settings={}, inputs={}, counts={"pairs": pairs, "names": names.rows, "concepts": concepts}
        )
    return Pairs.open(target, verify=False)
