"""Batches of pairs in a seeded order that can be resumed at any step.

An epoch is a permutation of all training pairs that depends only on the seed and the epoch, so a resumed run
needs only the number of steps done.

A thread prepares a few batches at once while earlier ones are trained on, so that the tokenizer has enough
names for all cores. Tokens are not cached, although each name occurs in several pairs: to tokenize twelve
million names first would delay the first step by minutes, and to tokenize during training costs one core.
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
"""Pairs prepared at once: eight batches of the paper's size, or one larger batch."""
_GROUPS_AHEAD = 2
"""Groups of batches prepared ahead, so that a slow one delays nothing."""

Prepared = TypeVar("Prepared")


@dataclass(frozen=True, slots=True)
class PairBatch:
    """The names that this process encodes, and how the names of all processes are related.

    Every process knows the order of all pairs, so it knows also the relations of names that it does not
    encode.
    """

    tokens: TokenRows
    """Tokens of the names of this process."""
    labels: NDArray[np.int32]
    """The concept each name was drawn for.  # (all,)"""
    shared_concept: NDArray[np.bool_]
    """Which names share a concept, also through an ambiguous text.  # (all, all)"""


class Batches:
    """The batches of a run; with several processes, the part of this process."""

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
                f"batch size {batch_size} exceeds the {len(rows)} training pairs; "
                f"give a batch size of at most {len(rows)}"
            )
        if batch_size % world:
            raise ConfigError(f"batch size {batch_size} is not divisible by the number of processes, {world}")
        self.steps_per_epoch = len(rows) // batch_size
        self._pairs, self._rows, self._tokenizer = pairs, rows, tokenizer
        self._batch_size, self._max_length, self._seed = batch_size, max_length, seed
        self._rank, self._world = rank, world

    def after(self, step: int, total: int) -> Iterator[PairBatch]:
        """Yield the batches of steps `step` to `total`, prepared in a thread."""
        return self.prepared(step, total, lambda batch: batch)

    def prepared(self, step: int, total: int, prepare: Callable[[PairBatch], Prepared]) -> Iterator[Prepared]:
        """Yield `prepare(batch)` of each batch, computed ahead of time in the same thread."""
        groups = self.numbers(step, total)
        at_once = max(_PAIRS_AHEAD // self._batch_size, 1)

        def prepare_group() -> list[Prepared]:
            return list(map(prepare, self._make_batches(list(islice(groups, at_once)))))

        # One thread, so that groups are prepared in their order.
        with ThreadPoolExecutor(1) as ahead:
            pending = deque(ahead.submit(prepare_group) for _ in range(_GROUPS_AHEAD))
            while batches := pending.popleft().result():
                pending.append(ahead.submit(prepare_group))
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

    def _make_batches(self, groups: list[NDArray[np.int64]]) -> list[PairBatch]:
        """Return one batch per group of pair numbers."""
        if not groups:
            return []
        # For each process first all left names, then all right ones: embeddings are gathered in this order.
        shares = self._pairs.pairs[np.stack(groups)].reshape(len(groups), self._world, -1, 2)
        rows = shares.transpose(0, 1, 3, 2).reshape(len(groups), self._world, -1)
        local = self._pairs.names.take(rows[:, self._rank].reshape(-1))
        tokens = tokenize(self._tokenizer, local, max_length=self._max_length)
        size = rows.shape[2]
        return [
            PairBatch(
                tokens.span(number * size, (number + 1) * size),
                self._pairs.concepts[names],
                self._pairs.share_concept(names),
            )
            for number, names in enumerate(rows.reshape(len(groups), -1))
        ]
