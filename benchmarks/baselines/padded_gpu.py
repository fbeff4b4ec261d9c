"""The paper's released code on a GPU, reimplemented with torch and transformers only, for `gpu.py`.

Every name is padded to 25 tokens. A training step encodes left and right names in two passes in fp16 with
gradient scaling, enumerates all triplets of the batch for mining, as pytorch-metric-learning does, and reads
the loss. Names are encoded in fp32.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional
from transformers import PreTrainedModel

from sapbert.tokens.batching import TokenRows
from sapbert.training.alignment.batches import PairBatch

WIDTH = 25
MARGIN, POSITIVE_SCALE, NEGATIVE_SCALE, OFFSET = 0.2, 1.0, 60.0, 0.5


class PaddedStep:
    """Trains a model like the reference; on a CPU in full precision."""

    def __init__(self, model: PreTrainedModel, *, half: bool) -> None:
        self.model, self._half = model, half
        self._optimizer = torch.optim.AdamW(model.parameters(), lr=2e-5, weight_decay=0.01)
        self._scaler = torch.amp.GradScaler(model.device.type, enabled=half)

    def run(self, batches: Iterable[PairBatch]) -> None:
        """Run one step per batch."""
        for batch in batches:
            self(batch)

    def __call__(self, batch: PairBatch) -> float:
        """Run one step and return the loss."""
        self._optimizer.zero_grad()
        loss = self.loss(batch)
        self._scaler.scale(loss).backward()
        self._scaler.step(self._optimizer)
        self._scaler.update()
        return float(loss.item())

    def loss(self, batch: PairBatch) -> Tensor:
        """Encode both sides and return the loss of the hard pairs."""
        device = self.model.device
        half = len(batch.labels) // 2
        with torch.autocast(device.type, torch.float16, enabled=self._half):
            names = torch.cat(
                [encode_padded(self.model, batch.tokens, np.arange(half) + start) for start in (0, half)]
            )
            labels = torch.from_numpy(batch.labels).to(device)
            return multi_similarity(functional.normalize(names.float(), dim=1), labels)


def encode_padded(model: PreTrainedModel, tokens: TokenRows, rows: np.ndarray) -> Tensor:
    """[CLS] of some names, padded.  # (names, dim)"""
    batch = tokens.pad(rows, pad_id=0, width=WIDTH)
    ids, real = (torch.from_numpy(part).to(model.device) for part in (batch.ids, batch.attention))
    cls: Tensor = model(input_ids=ids, attention_mask=real.long()).last_hidden_state[:, 0]
    return cls


def multi_similarity(names: Tensor, labels: Tensor) -> Tensor:
    """Multi-similarity loss over the pairs of all triplets within the margin, which are enumerated."""
    same = labels[:, None] == labels
    itself = torch.eye(len(labels), dtype=torch.bool, device=labels.device)
    triplets = (same & ~itself)[:, :, None] & ~same[:, None, :]  # (n, n, n)
    anchor, positive, negative = triplets.nonzero(as_tuple=True)
    distances = torch.cdist(names, names)
    hard = distances[anchor, negative] - distances[anchor, positive] <= MARGIN
    anchor, positive, negative = anchor[hard], positive[hard], negative[hard]
    cosines = names @ names.T - OFFSET
    total = torch.zeros((), device=names.device)
    for partner, scale in ((positive, -POSITIVE_SCALE), (negative, NEGATIVE_SCALE)):
        chosen = torch.zeros_like(same)
        chosen[anchor, partner] = True
        exponents = (scale * cosines).masked_fill(~chosen, -torch.inf)
        total = total + functional.pad(exponents, (0, 1)).logsumexp(1).mean() / abs(scale)
    return total


def encode_names(model: PreTrainedModel, tokens: TokenRows, *, at_once: int = 2048) -> Sequence[Tensor]:
    """Unit vectors of all names, in full precision."""
    names = len(tokens.lengths)
    with torch.no_grad():
        return [
            functional.normalize(encode_padded(model, tokens, np.arange(start, min(start + at_once, names))))
            for start in range(0, names, at_once)
        ]
