"""Choices whose right candidates are known: what a reranker learns from. numpy at most, and all in memory.

Twenty names a mention are some three kilobytes: the largest set of labelled mentions, MedMentions' 122,000,
takes less than a gigabyte. Which are the candidates says `linking.reranker_examples`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass
from typing import Any

import numpy as np

from sapbert.protocols import Choice
from sapbert.text import fold


@dataclass(frozen=True, slots=True)
class LabelledChoice:
    """A mention, its candidates, and which of them are right."""

    choice: Choice
    right: tuple[bool, ...]
    """Of each candidate; there may be several, or none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelledChoices:
    """What one reranker is trained on."""

    choices: Sequence[LabelledChoice]
    context: bool
    """Whether mentions come with context."""
    inputs: Mapping[str, Any]
    """What they were made from, for the model's manifest."""

    @property
    def fingerprint(self) -> str:
        """Equal for equal choices in equal order."""
        digest = hashlib.sha256()
        for own in self.choices:
            digest.update(f"{astuple(own)!r}\n".encode(errors="backslashreplace"))
        return digest.hexdigest()[:32]

    def parted(self, held_out: int, seed: int) -> tuple[list[LabelledChoice], list[LabelledChoice]]:
        """Part what is learned from what is measured with: of so many mentions, at most of a fifth.

        All choices of a mention are on one side, however often a corpus repeats it.
        """
        texts = list(dict.fromkeys(fold(own.choice.mention) for own in self.choices))
        order = np.random.default_rng(seed).permutation(len(texts))
        kept = {texts[place] for place in order[: min(held_out, len(texts) // 5)]}
        learned: list[LabelledChoice] = []
        measured: list[LabelledChoice] = []
        for own in self.choices:
            (measured if fold(own.choice.mention) in kept else learned).append(own)
        return learned, measured
