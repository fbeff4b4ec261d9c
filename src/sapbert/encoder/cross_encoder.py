"""A cross-encoder: reads a candidate's name and the mention together, and says how well they fit.

It is an ordinary encoder of the text `name [SEP] mention`, and a direction: a candidate's score is the dot
product of its vector with the direction, and a weight times what the search gave it. So packing, export and
int8 are the encoder's, and one that has learned nothing (direction zero) leaves candidates in their order. A
bias would be the same for all candidates of a mention.

The name comes first, since what is too long is cut at the end. Where context was learned, the mention stands
in it between brackets, `had a [ cold ] since monday`: every tokenizer knows brackets, while markers of its
own would need new rows of embeddings, which a few thousand mentions do not teach. Both texts are of the first
segment, as encoders of names have never seen a second.

    RERANKER/
      manifest.json
      reranker.json   the direction, the weight, and how texts are joined
      encoder/        as trained (`encoder.model_folder`) or exported (`encoder.onnx`), the only one used here
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from math import isfinite
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sapbert.artifacts import fingerprint_of, load_manifest
from sapbert.errors import ArtifactError
from sapbert.protocols import Choice, Encoder
from sapbert.text import fold

KIND = "reranker"
ENCODER, HEAD_FILE = "encoder", "reranker.json"
AROUND = 120
"""Characters of context that are read on each side of a mention; models are trained with as many."""
_CHOICES = 256
"""Choices encoded together, which bounds memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """What makes a reranker of an encoder."""

    direction: tuple[float, ...]
    """What a vector is multiplied with."""
    score_weight: float
    """What the score of the search counts."""
    separator: str
    """Token between name and mention, as the tokenizer spells it."""
    context: bool
    """Whether it was trained with context; else it reads none."""

    def joined(self, choice: Choice) -> list[str]:
        """Return the text of each candidate of a choice."""
        context = fold(choice.context) if self.context else ""
        mention = marked(fold(choice.mention), context)
        names = map(fold, choice.names)
        # A separator inside a text would be read as one.
        return [
            f"{name.replace(self.separator, ' ')} {self.separator} {mention.replace(self.separator, ' ')}"
            for name in names
        ]


def marked(mention: str, context: str) -> str:
    """Return what is near the mention in its context, with brackets around it; without context the mention.

    Its first place counts. Where it has none, as one whose abbreviation was written out, it goes in front.
    """
    if not context:
        return mention
    found = re.search(rf"(?<!\w){re.escape(mention)}(?!\w)", context)
    if found is None:
        return f"[ {mention} ] {context[: 2 * AROUND]}"
    start, stop = found.span()
    return f"{context[max(start - AROUND, 0) : start]}[ {mention} ]{context[stop : stop + AROUND]}"


def write_head(folder: Path, head: Head) -> None:
    """Write `reranker.json`."""
    (folder / HEAD_FILE).write_text(json.dumps(asdict(head)) + "\n", encoding="utf-8")


def read_head(folder: Path) -> Head:
    """Read `reranker.json`; one that cannot be right is refused."""
    file = folder / HEAD_FILE
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
        head = Head(**{**content, "direction": tuple(map(float, content["direction"]))})
        whole = isfinite(head.score_weight) and all(map(isfinite, head.direction)) and head.separator
    except (OSError, ValueError, TypeError, LookupError) as error:
        raise ArtifactError(f"{file} is damaged: {error}; train the reranker again") from error
    if not whole:
        raise ArtifactError(f"{file} is damaged: not all numbers are finite; train the reranker again")
    return head


class CrossEncoder:
    """Scores candidates by reading them beside the mention; fits `protocols.Reranker`."""

    def __init__(self, encoder: Encoder, head: Head) -> None:
        if encoder.dimension != len(head.direction):
            raise ArtifactError(
                f"the encoder has {encoder.dimension} dimensions and its head {len(head.direction)}; "
                "are they of one reranker?"
            )
        self._encoder = encoder
        self._head = head
        self._direction = np.array(head.direction, np.float32)

    @classmethod
    def open(cls, folder: Path | str, *, threads: int | None = None) -> CrossEncoder:
        """Open what `sapbert export` wrote of a reranker; it computes on so many threads, by default all."""
        from sapbert.encoder.onnx import OnnxEncoder, is_exported

        path = Path(folder).expanduser()
        load_manifest(path, kind=KIND)
        if not is_exported(path / ENCODER):
            raise ArtifactError(
                f"{path}: a reranker as it was trained; export it first: sapbert export {path} -o OUT"
            )
        return cls(OnnxEncoder.open(path / ENCODER, threads=threads, verify=False), read_head(path))

    @property
    def fingerprint(self) -> str:
        """Digest of encoder and head."""
        head = hashlib.sha256(json.dumps(asdict(self._head)).encode()).hexdigest()
        return fingerprint_of({"encoder": self._encoder.fingerprint, "head": head})

    def rerank(self, choices: Sequence[Choice]) -> list[NDArray[np.float32]]:
        """Return for each choice one score a name.  # (names,) each"""
        scores: list[NDArray[np.float32]] = []
        for start in range(0, len(choices), _CHOICES):
            scores += self._rerank(choices[start : start + _CHOICES])
        return scores

    def _rerank(self, choices: Sequence[Choice]) -> list[NDArray[np.float32]]:
        texts = [text for choice in choices for text in self._head.joined(choice)]
        searched = np.array([score for choice in choices for score in choice.scores], np.float32)
        learned = self._encoder.encode(texts) @ self._direction
        ends = np.cumsum([len(choice.names) for choice in choices])
        return np.split(learned + np.float32(self._head.score_weight) * searched, ends[:-1])
