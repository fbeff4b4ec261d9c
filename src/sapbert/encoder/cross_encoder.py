"""A cross-encoder: encodes a candidate's name and the mention together, and scores how well they fit.

It is an ordinary encoder of the text `name [SEP] mention` plus a direction. A candidate's score is the dot
product of its vector and the direction, plus a weight times its search score. Packing, export and int8 are
therefore those of any encoder, and an untrained cross-encoder (direction zero) keeps the order of the search.
There is no bias: it would be the same for all candidates of a mention.

The name comes first, because long texts are truncated at the end. If the model was trained with context, the
mention is bracketed inside it: `had a [ cold ] since monday`. Every tokenizer knows brackets; new marker
tokens would need new embeddings, which a few thousand mentions cannot train. Both texts are in the first
segment, since name encoders have never seen a second one.

    RERANKER/
      manifest.json
      reranker.json   the direction, the weight, and how texts are joined
      encoder/        as trained (`encoder.model_folder`) or as exported (`encoder.onnx`), which linking uses
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
from sapbert.protocols import Encoder, RerankRequest
from sapbert.text import fold

KIND = "reranker"
ENCODER, HEAD_FILE = "encoder", "reranker.json"
CONTEXT_WIDTH = 120
"""Characters of context on each side of a mention, in training and in use."""
_REQUESTS_PER_BATCH = 256
"""Requests encoded together, which bounds memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """The parameters that turn an encoder into a reranker."""

    direction: tuple[float, ...]
    """Multiplied with the vector of a candidate."""
    score_weight: float
    """Weight of the search score."""
    separator: str
    """Token between name and mention, as the tokenizer spells it."""
    context: bool
    """Whether the model was trained with context; if not, context is ignored."""

    def texts(self, request: RerankRequest) -> list[str]:
        """Return the text to encode for each candidate."""
        context = fold(request.context) if self.context else ""
        mention = bracket_mention(fold(request.mention), context)
        names = map(fold, request.names)
        # A name or mention must not contain the separator token.
        return [
            f"{name.replace(self.separator, ' ')} {self.separator} {mention.replace(self.separator, ' ')}"
            for name in names
        ]


def bracket_mention(mention: str, context: str) -> str:
    """Return the context near the mention, with brackets around the mention; without context, the mention.

    The first occurrence counts. A mention that does not occur, such as an expanded abbreviation, is put in
    front of the context.
    """
    if not context:
        return mention
    match = re.search(rf"(?<!\w){re.escape(mention)}(?!\w)", context)
    if match is None:
        return f"[ {mention} ] {context[: 2 * CONTEXT_WIDTH]}"
    start, stop = match.span()
    before, after = context[max(start - CONTEXT_WIDTH, 0) : start], context[stop : stop + CONTEXT_WIDTH]
    return f"{before}[ {mention} ]{after}"


def write_head(folder: Path, head: Head) -> None:
    """Write `reranker.json`."""
    (folder / HEAD_FILE).write_text(json.dumps(asdict(head)) + "\n", encoding="utf-8")


def read_head(folder: Path) -> Head:
    """Read `reranker.json` and check its values."""
    file = folder / HEAD_FILE
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
        head = Head(**{**content, "direction": tuple(map(float, content["direction"]))})
        valid = isfinite(head.score_weight) and all(map(isfinite, head.direction)) and head.separator
    except (OSError, ValueError, TypeError, LookupError) as error:
        raise ArtifactError(f"{file} is damaged: {error}; train the reranker again") from error
    if not valid:
        raise ArtifactError(f"{file} is damaged: not all numbers are finite; train the reranker again")
    return head


class CrossEncoder:
    """Scores each candidate together with its mention; implements `protocols.Reranker`."""

    def __init__(self, encoder: Encoder, head: Head) -> None:
        if encoder.dimension != len(head.direction):
            raise ArtifactError(
                f"the encoder has {encoder.dimension} dimensions and the head {len(head.direction)}; "
                "do they belong to the same reranker?"
            )
        self._encoder = encoder
        self._head = head
        self._direction = np.array(head.direction, np.float32)

    @classmethod
    def open(cls, folder: Path | str, *, threads: int | None = None) -> CrossEncoder:
        """Open a reranker written by `sapbert export`; `threads` defaults to all cores."""
        from sapbert.encoder.exported import is_exported
        from sapbert.encoder.onnx import OnnxEncoder

        path = Path(folder).expanduser()
        load_manifest(path, kind=KIND)
        if not is_exported(path / ENCODER):
            raise ArtifactError(f"{path}: this reranker is not exported; run: sapbert export {path} -o OUT")
        return cls(OnnxEncoder.open(path / ENCODER, threads=threads, verify=False), read_head(path))

    @property
    def fingerprint(self) -> str:
        """Digest of encoder and head."""
        head = hashlib.sha256(json.dumps(asdict(self._head)).encode()).hexdigest()
        return fingerprint_of({"encoder": self._encoder.fingerprint, "head": head})

    def rerank(self, requests: Sequence[RerankRequest]) -> list[NDArray[np.float32]]:
        """Return one score per name of each request.  # (names,) each"""
        scores: list[NDArray[np.float32]] = []
        for start in range(0, len(requests), _REQUESTS_PER_BATCH):
            scores += self._rerank(requests[start : start + _REQUESTS_PER_BATCH])
        return scores

    def _rerank(self, requests: Sequence[RerankRequest]) -> list[NDArray[np.float32]]:
        texts = [text for request in requests for text in self._head.texts(request)]
        search_scores = np.array([score for request in requests for score in request.scores], np.float32)
        learned = self._encoder.encode(texts) @ self._direction
        ends = np.cumsum([len(request.names) for request in requests])
        return np.split(learned + np.float32(self._head.score_weight) * search_scores, ends[:-1])
