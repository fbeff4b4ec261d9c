"""The training step of the paper's released code of 2021, reimplemented with current libraries.

Every name is padded to 25 tokens, the left and the right names of a batch are encoded in two passes, and
pytorch-metric-learning mines all triplets and computes the multi-similarity loss. Names are tokenised by
transformers, in the workers of a `DataLoader` if there are any.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from pytorch_metric_learning import losses, miners
from torch import Tensor
from torch.utils.data import DataLoader, Dataset
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from sapbert.pairs.artifact import Pairs
from sapbert.training.alignment.batches import Batches

Batch = tuple[dict[str, Tensor], dict[str, Tensor], Tensor]


class PairTexts(Dataset[tuple[str, str, int]]):
    """Two names of a concept, and its number."""

    def __init__(self, pairs: Pairs) -> None:
        self._pairs = pairs

    def __getitem__(self, number: int) -> tuple[str, str, int]:
        left, right = self._pairs.pairs[number]
        return self._pairs.names[left], self._pairs.names[right], int(self._pairs.concepts[left])


class Reference:
    """Trains a model like the reference."""

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        pairs: Pairs,
        batches: Batches,
        *,
        dtype: torch.dtype | None,
        workers: int,
    ) -> None:
        self.model = model
        self._tokenizer, self._pairs, self._batches = tokenizer, pairs, batches
        self._dtype, self._workers = dtype, workers
        self._mine = miners.TripletMarginMiner(margin=0.2, type_of_triplets="all")
        self._loss = losses.MultiSimilarityLoss(alpha=1, beta=60, base=0.5)
        self._optimizer = torch.optim.AdamW(model.parameters(), lr=2e-5, weight_decay=0.01)

    def run(self, start: int, stop: int) -> Iterator[float]:
        """Run the steps from `start` to `stop` and yield the losses."""
        loader = DataLoader(
            PairTexts(self._pairs),
            batch_sampler=[group.tolist() for group in self._batches.numbers(start, stop)],
            collate_fn=self._collate,
            num_workers=self._workers,
        )
        for left, right, labels in loader:
            device = self.model.device
            self._optimizer.zero_grad()
            with torch.autocast(device.type, dtype=self._dtype, enabled=self._dtype is not None):
                names = torch.cat([self._encode(left), self._encode(right)])  # (names, dim)
                both = torch.cat([labels, labels]).to(device)
                loss = self._loss(names, both, self._mine(names, both))
            loss.backward()
            self._optimizer.step()
            yield loss.item()

    def _encode(self, tokens: dict[str, Tensor]) -> Tensor:
        moved = {name: tensor.to(self.model.device) for name, tensor in tokens.items()}
        cls: Tensor = self.model(**moved).last_hidden_state[:, 0]
        return cls

    def _collate(self, rows: list[tuple[str, str, int]]) -> Batch:
        left, right, labels = zip(*rows, strict=True)
        options: dict[str, Any] = {"padding": "max_length", "max_length": 25, "truncation": True}
        return (
            dict(self._tokenizer(list(left), **options, return_tensors="pt")),
            dict(self._tokenizer(list(right), **options, return_tensors="pt")),
            torch.tensor(labels),
        )
