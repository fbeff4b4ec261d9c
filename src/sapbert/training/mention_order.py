"""Batches of labelled mentions: every epoch uses all of them, in a new random order.

The order depends only on the seed and the epoch, so a resumed run needs no saved state.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sapbert.training.settings import BiosynSettings, RerankerSettings


@dataclass(frozen=True, slots=True)
class MentionOrder:
    """The batches of a run over `mentions` labelled mentions."""

    mentions: int
    settings: BiosynSettings | RerankerSettings

    @property
    def steps_per_epoch(self) -> int:
        """Number of steps of one epoch."""
        return -(-self.mentions // self.settings.batch_size)

    @property
    def total(self) -> int:
        """Number of steps of the whole run."""
        return self.settings.epochs * self.steps_per_epoch

    def batches(self, done: int) -> Iterator[tuple[int, NDArray[np.int64]]]:
        """Yield the epoch and the mentions of each step after the first `done`."""
        size = self.settings.batch_size
        for number in range(done, self.total):
            epoch, place = divmod(number, self.steps_per_epoch)
            order = np.random.default_rng([self.settings.seed, epoch]).permutation(self.mentions)
            yield epoch, order[place * size : (place + 1) * size]
