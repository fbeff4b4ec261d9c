"""Batches of pairs in a seeded order that can be taken up again at any step.

An epoch is a permutation of all training pairs; which one depends only on the seed and the epoch, so a
resumed run needs no more than the number of steps done. Concepts held out for evaluation are picked by
seed as well, and none of their pairs is trained on.

A thread prepares a few batches at once while those before are trained on: the tokenizer then has enough names
for all cores. Tokens are not kept, though each name comes again in every pair it is in: to tokenise twelve
million names first would take minutes before the first step, and to do it on the way costs a core.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
from transformers import PreTrainedTokenizerBase

from sapbert.encoder.transformer import tokenize
from sapbert.errors import ConfigError
from sapbert.pairs.artifact import Pairs
from sapbert.tokens.batching import TokenRows

_PAIRS_AHEAD = 2048
"""Pairs prepared at once: eight batches of the paper's, and no more than one of a large size."""
_GROUPS_AHEAD = 2
"""Such groups prepared before they are needed: one that takes long is then not waited for."""

Made = TypeVar("Made")


@dataclass(frozen=True, slots=True)
class PairBatch:
    """The names of a batch that are this process's own, and how the names of all processes relate.

    Every process knows the order of pairs, so it can tell the relations of names it never sees.
    """

    tokens: TokenRows
    """Of the own names."""
    labels: NDArray[np.int32]
    """The concept each name was drawn for.  # (all,)"""
    shared_concept: NDArray[np.bool_]
    """Which names have a concept in common, also through an ambiguous text.  # (all, all)"""


@dataclass(frozen=True, slots=True)
class Split:
    """Which pairs are trained on and which are kept to measure with."""

    train: NDArray[np.int64]
    held_out: NDArray[np.int64]


def split_pairs(pairs: Pairs, *, held_out_concepts: int, seed: int) -> Split:
    """Hold out all pairs of some concepts, at most a fifth of those that have any."""
    owners = pairs.concepts[pairs.pairs[:, 0]]
    if not held_out_concepts:
        return Split(np.arange(len(pairs)), np.empty(0, np.int64))
    # Tables over all concepts: to sort the owners of twelve million pairs takes seconds.
    paired = np.zeros(len(pairs.concept_ids), np.bool_)
    paired[owners] = True
    concepts = np.flatnonzero(paired)
    count = min(held_out_concepts, len(concepts) // 5)
    chosen = np.zeros_like(paired)
    chosen[np.random.default_rng(seed).choice(concepts, count, replace=False)] = True
    held = chosen[owners]
    return Split(np.flatnonzero(~held), np.flatnonzero(held))


class Batches:
    """The batches of a run; this process's share of each where several train together."""

    def __init__(
        self,
        pairs: Pairs,
        rows: NDArray[np.int64],
        tokenizer: PreTrainedTokenizerBase,
        *,
        batch_size: int,
        max_length: int,
        seed: int,
        rank: int = 0,
        world: int = 1,
    ) -> None:
        if len(rows) < batch_size:
            raise ConfigError(
                f"a batch of {batch_size} pairs is more than the {len(rows)} there are to train on; "
                f"give a batch size of at most {len(rows)}"
            )
        if batch_size % world:
            raise ConfigError(f"a batch of {batch_size} pairs cannot be shared evenly by {world} processes")
        self.steps_per_epoch = len(rows) // batch_size
        self._pairs, self._rows, self._tokenizer = pairs, rows, tokenizer
        self._batch_size, self._max_length, self._seed = batch_size, max_length, seed
        self._rank, self._world = rank, world

    def after(self, step: int, total: int) -> Iterator[PairBatch]:
        """Yield the batches of steps `step` to `total`, prepared while those before are trained on."""
        return self.prepared(step, total, lambda batch: batch)

    def prepared(self, step: int, total: int, make: Callable[[PairBatch], Made]) -> Iterator[Made]:
        """Yield what `make` makes of each batch, which is done ahead of time as well."""
        groups = self.numbers(step, total)
        at_once = max(_PAIRS_AHEAD // self._batch_size, 1)

        def prepare() -> list[Made]:
            return list(map(make, self._prepare(list(islice(groups, at_once)))))

        # One thread, so that groups are prepared in their order.
        with ThreadPoolExecutor(1) as ahead:
            pending = deque(ahead.submit(prepare) for _ in range(_GROUPS_AHEAD))
            while batches := pending.popleft().result():
                pending.append(ahead.submit(prepare))
                yield from batches

    def numbers(self, step: int, total: int) -> Iterator[NDArray[np.int64]]:
        """Yield the pair numbers of each batch."""
        epoch, order = -1, self._rows
        for number in range(step, total):
            if number // self.steps_per_epoch != epoch:
                epoch = number // self.steps_per_epoch
                order = np.random.default_rng([self._seed, epoch]).permutation(self._rows)
            start = number % self.steps_per_epoch * self._batch_size
            yield order[start : start + self._batch_size]

    def _prepare(self, groups: list[NDArray[np.int64]]) -> list[PairBatch]:
        """Make a batch of each group of pair numbers."""
        if not groups:
            return []
        # Of each process first all left names, then all right ones: embeddings are gathered in this order.
        shares = self._pairs.pairs[np.stack(groups)].reshape(len(groups), self._world, -1, 2)
        rows = shares.transpose(0, 1, 3, 2).reshape(len(groups), self._world, -1)
        own = self._pairs.names.take(rows[:, self._rank].reshape(-1))
        tokens = tokenize(self._tokenizer, own, max_length=self._max_length)
        size = rows.shape[2]
        return [
            PairBatch(
                tokens.span(number * size, (number + 1) * size),
                self._pairs.concepts[names],
                self._pairs.share_concept(names),
            )
            for number, names in enumerate(rows.reshape(len(groups), -1))
        ]
