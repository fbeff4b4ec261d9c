"""Training data of a reranker: mentions with candidates, and which of these are right.

Everything is in memory, without polars. Twenty names per mention take about three kilobytes: the largest set
of labelled mentions, MedMentions with 122,000, takes less than a gigabyte. `linking.reranker_examples` makes
the candidates.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass
from typing import Any

import numpy as np

from sapbert.protocols import RerankRequest
from sapbert.text import fold


@dataclass(frozen=True, slots=True)
class RerankExample:
    """A mention, its candidates, and which of them are right."""

    request: RerankRequest
    is_right: tuple[bool, ...]
    """One value per candidate; several may be right, or none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RerankerDataset:
    """The examples that one reranker is trained on."""

    examples: Sequence[RerankExample]
    context: bool
    """Whether the examples have context."""
    inputs: Mapping[str, Any]
    """Sources of the examples, for the manifest of the model."""

    @property
    def fingerprint(self) -> str:
        """Equal for equal examples in equal order."""
        digest = hashlib.sha256()
        for example in self.examples:
            digest.update(f"{astuple(example)!r}\n".encode(errors="backslashreplace"))
        return digest.hexdigest()[:32]

    def split(self, held_out: int, seed: int) -> tuple[list[RerankExample], list[RerankExample]]:
        """Return the training examples and the examples of `held_out` mentions, at most a fifth of all.

        All examples of a mention are on one side, however often a corpus repeats it.
        """
        texts = list(dict.fromkeys(fold(example.request.mention) for example in self.examples))
        order = np.random.default_rng(seed).permutation(len(texts))
        kept = {texts[place] for place in order[: min(held_out, len(texts) // 5)]}
        training: list[RerankExample] = []
        held: list[RerankExample] = []
        for example in self.examples:
            (held if fold(example.request.mention) in kept else training).append(example)
        return training, held
