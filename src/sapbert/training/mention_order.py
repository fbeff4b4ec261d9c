"""The order in which labelled mentions are learned from: all of them every epoch, each time shuffled anew.

It depends on the seed and the epoch alone, so a resumed run needs no state to go on with it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sapbert.training.settings import BiosynSettings, RerankerSettings


@dataclass(frozen=True, slots=True)
class Epochs:
    """So many mentions, in batches."""

    mentions: int
    settings: BiosynSettings | RerankerSettings

    @property
    def steps(self) -> int:
        """Steps of one epoch."""
        return -(-self.mentions // self.settings.batch_size)

    @property
    def total(self) -> int:
        """Steps of the whole run."""
        return self.settings.epochs * self.steps

    def after(self, done: int) -> Iterator[tuple[int, NDArray[np.int64]]]:
        """Yield for each step from step `done` on its epoch and which mentions are its batch."""
        size = self.settings.batch_size
        for number in range(done, self.total):
            epoch, place = divmod(number, self.steps)
            order = np.random.default_rng([self.settings.seed, epoch]).permutation(self.mentions)
            yield epoch, order[place * size : (place + 1) * size]
