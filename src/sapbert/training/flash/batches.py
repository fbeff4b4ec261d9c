"""The names of a run with their features, and batches of pairs in a seeded order.

Features are computed once for all names and for the misspelt copies of some: a step then only gathers them.
A copy and its name are a pair like any other. An epoch is a permutation of all pairs that depends only on the
seed and the epoch, so a resumed run needs only the number of steps done.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from sapbert.encoder.flash.features import Features, FeatureSpec, features
from sapbert.errors import ConfigError
from sapbert.pairs.artifact import Pairs
from sapbert.parallel import ordered_map
from sapbert.training.flash.misspellings import Misspellings, misspell

_NAMES_AT_ONCE = 16_384
"""Names whose features are computed at once."""
_COPIES_STREAM = 1
"""Separates the random numbers of misspelt copies from those of other uses of the seed."""


@dataclass(frozen=True, slots=True)
class TrainingNames:
    """Names and misspelt copies of names: a row each, the copies last."""

    features: Features
    originals: NDArray[np.int64]
    """For each row the row of its name: itself, or for a copy the name that it was made of."""
    pairs: NDArray[np.int64]
    """Rows of two names of a concept, or of a name and its copy.  # (pairs, 2)"""

    @classmethod
    def prepare(
        cls, pairs: Pairs, train: NDArray[np.int64], spec: FeatureSpec, *, misspelt: float, seed: int
    ) -> TrainingNames:
        """Prepare the pairs with the numbers `train`; of all resulting pairs, `misspelt` have a copy."""
        rows = pairs.pairs[train].astype(np.int64)
        copies = _misspelt_copies(pairs, rows, misspelt / (1 - misspelt), seed)
        names = len(pairs.names)
        with_copy = np.stack([copies.names, names + np.arange(len(copies.names))], axis=1)
        blocks = [
            partial(pairs.names.span, start, min(start + _NAMES_AT_ONCE, names))
            for start in range(0, names, _NAMES_AT_ONCE)
        ]
        blocks += [
            partial(copies.texts.__getitem__, slice(start, start + _NAMES_AT_ONCE))
            for start in range(0, len(copies.texts), _NAMES_AT_ONCE)
        ]
        computed = list(ordered_map(lambda texts: features(texts(), spec), blocks))
        lengths = np.concatenate([np.diff(part.offsets) for part in computed])
        return cls(
            Features(
                np.concatenate([part.ids for part in computed]),
                np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)]),
            ),
            np.concatenate([np.arange(names), copies.names]),
            np.concatenate([rows, with_copy]),
        )

    def used_rows(self, rows: int) -> NDArray[np.bool_]:
        """Return which of the `rows` of the table are a feature of a name or copy in the pairs."""
        paired = np.zeros(len(self.originals), np.bool_)
        paired[self.pairs] = True
        used = np.zeros(rows, np.bool_)
        used[self.features.ids[np.repeat(paired, np.diff(self.features.offsets))]] = True
        return used

    def batches(self, size: int, seed: int, done: int, total: int) -> Iterator[NDArray[np.int64]]:
        """Yield the rows of steps `done` to `total`: the left names of all pairs, then the right names."""
        steps_per_epoch = len(self.pairs) // size
        epoch, order = -1, np.arange(0)
        for step in range(done, total):
            if step // steps_per_epoch != epoch:
                epoch = step // steps_per_epoch
                order = np.random.default_rng([seed, epoch]).permutation(len(self.pairs))
            start = step % steps_per_epoch * size
            yield self.pairs[order[start : start + size]].T.reshape(-1)


def batch_size(chosen: int | None, default: int, pairs: int) -> int:
    """Return the pairs per step: those chosen, or the default, reduced for few pairs."""
    if chosen is None:
        # Several batches per epoch, so that a name meets different negatives.
        return max(min(default, pairs // 8), 2)
    if chosen > pairs:
        raise ConfigError(
            f"batch size {chosen} exceeds the {pairs} training pairs; give a batch size of at most {pairs}"
        )
    return chosen


def _misspelt_copies(pairs: Pairs, rows: NDArray[np.int64], ratio: float, seed: int) -> Misspellings:
    """Return misspelt copies of names drawn from the training pairs, at most `ratio` times as many.

    Names are drawn from pairs, not from all names, so that the weights of sources apply to copies too.
    """
    generator = np.random.default_rng([seed, _COPIES_STREAM])
    count = round(ratio * len(rows))
    drawn = np.sort(generator.choice(rows.reshape(-1), count))
    parts = [
        misspell(pairs.names.take(block), generator)
        for block in np.array_split(drawn, range(_NAMES_AT_ONCE, count, _NAMES_AT_ONCE))
    ]
    starts = range(0, max(count, 1), _NAMES_AT_ONCE)
    names = [drawn[start + part.names] for start, part in zip(starts, parts, strict=True)]
    return Misspellings(np.concatenate(names), [text for part in parts for text in part.texts])
