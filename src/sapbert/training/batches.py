"""Batches of pairs in a seeded order that can be taken up again at any step.

An epoch is a permutation of all training pairs; which one depends only on the seed and the epoch, so a
resumed run needs no more than the number of steps done. Concepts held out for evaluation are picked by
seed as well, and none of their pairs is trained on. Names are tokenised a batch ahead, on a thread.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from sapbert.encoder.batching import TokenRows
from sapbert.encoder.transformer import tokenize
from sapbert.errors import ConfigError
from sapbert.pairs.artifact import Pairs


@dataclass(frozen=True, slots=True)
class Batch:
    """The names of a batch that are this process's own, and how the names of all processes relate.

    Every process knows the order of pairs, so it can tell the relations of names it never sees.
    """

    tokens: TokenRows
    """Of the own names."""
    labels: Tensor
    """The concept each name was drawn for.  # (all,)"""
    share: Tensor
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
    concepts = np.unique(owners)
    count = min(held_out_concepts, len(concepts) // 5)
    chosen = np.random.default_rng(seed).choice(concepts, count, replace=False)
    held = np.isin(owners, chosen)
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
        self.steps_an_epoch = len(rows) // batch_size
        self._pairs, self._rows, self._tokenizer = pairs, rows, tokenizer
        self._batch_size, self._max_length, self._seed = batch_size, max_length, seed
        self._rank, self._world = rank, world

    def after(self, step: int, total: int) -> Iterator[Batch]:
        """Yield the batches of steps `step` to `total`, each prepared while the one before is trained on."""
        with ThreadPoolExecutor(1) as ahead:
            numbers = self._numbers(step, total)
            first = next(numbers, None)
            pending = None if first is None else ahead.submit(self._batch, first)
            while pending is not None:
                following = next(numbers, None)
                prepared = pending
                pending = None if following is None else ahead.submit(self._batch, following)
                yield prepared.result()

    def _numbers(self, step: int, total: int) -> Iterator[NDArray[np.int64]]:
        """The pair numbers of each batch."""
        epoch, order = -1, self._rows
        for number in range(step, total):
            if number // self.steps_an_epoch != epoch:
                epoch = number // self.steps_an_epoch
                order = np.random.default_rng([self._seed, epoch]).permutation(self._rows)
            start = number % self.steps_an_epoch * self._batch_size
            yield order[start : start + self._batch_size]

    def _batch(self, numbers: NDArray[np.int64]) -> Batch:
        # Of each process first all left names, then all right ones: embeddings are gathered in this order.
        shares = self._pairs.pairs[numbers].reshape(self._world, -1, 2)
        rows = shares.transpose(0, 2, 1).reshape(-1)
        names = len(rows) // self._world
        own = slice(self._rank * names, (self._rank + 1) * names)
        labels, share = self._pairs.concepts[rows], self._pairs.share_concept(rows)
        return Batch(
            tokenize(self._tokenizer, self._pairs.names.take(rows[own]), max_length=self._max_length),
            torch.from_numpy(labels),
            torch.from_numpy(share),
        )
