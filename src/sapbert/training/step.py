"""One training step: encode the names of a batch, mine hard pairs, and send the gradient back.

A batch that does not fit in memory is encoded in chunks, twice: first without a graph, to get every
embedding and, from the loss over all of them, its gradient; then chunk by chunk with a graph, to carry that
gradient into the parameters. So the whole batch serves as negatives whatever the memory, and the result
is that of one large pass: dropout is replayed by restoring the random state of each chunk.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional
from transformers import PreTrainedModel

from sapbert.encoder.pooling import Pooling, pool
from sapbert.training.batches import Batch
from sapbert.training.gather import gather, world
from sapbert.training.losses import Loss
from sapbert.training.mining import MiningSettings, mine


@dataclass(frozen=True, slots=True)
class StepReport:
    """What one step found."""

    loss: float
    positives: int
    """Hard positive pairs."""
    negatives: int
    """Hard negative pairs."""


class Encode:
    """Turns tokens into unit vectors with a graph, under autocast where precision asks for it."""

    def __init__(
        self, model: PreTrainedModel, pooling: Pooling, device: torch.device, dtype: torch.dtype | None
    ) -> None:
        self._model, self._pooling, self._device, self._dtype = model, pooling, device, dtype

    def __call__(self, tokens: dict[str, Tensor]) -> Tensor:
        """Return unit vectors.  # (names, dim)"""
        moved = {name: tensor.to(self._device, non_blocking=True) for name, tensor in tokens.items()}
        special = moved.pop("special_tokens_mask")
        enabled = self._dtype is not None
        with torch.autocast(self._device.type, dtype=self._dtype, enabled=enabled):
            hidden = self._model(**moved).last_hidden_state  # (names, tokens, dim)
        pooled = pool(hidden.float(), moved["attention_mask"], special, self._pooling)
        return functional.normalize(pooled, dim=-1)


@dataclass(frozen=True, slots=True)
class Step:
    """Computes the gradient of one batch."""

    encode: Encode
    loss: Loss
    mining: MiningSettings
    device: torch.device
    chunk: int | None
    """Names encoded at a time; None encodes the batch in one pass."""

    def __call__(self, batch: Batch, scale: Callable[[Tensor], Tensor]) -> StepReport:
        """Add the gradient of the batch to the parameters; `scale` is that of mixed precision."""
        names = len(batch.tokens["input_ids"])
        if self.chunk is None or names <= self.chunk:
            objective, report = self._objective(self.encode(batch.tokens), batch)
            scale(objective).backward()
            return report
        return self._in_chunks(batch, scale, names)

    def _in_chunks(self, batch: Batch, scale: Callable[[Tensor], Tensor], names: int) -> StepReport:
        assert self.chunk is not None
        spans = [slice(start, start + self.chunk) for start in range(0, names, self.chunk)]
        states, parts = [], []
        with torch.no_grad():
            for span in spans:
                states.append(_random_state(self.device))
                parts.append(self.encode(_cut(batch.tokens, span)))
        embeddings = torch.cat(parts).requires_grad_()
        objective, report = self._objective(embeddings, batch)
        scale(objective).backward()
        assert embeddings.grad is not None
        for span, state in zip(spans, states, strict=True):
            with _replayed(state, self.device):
                again = self.encode(_cut(batch.tokens, span))
            again.backward(embeddings.grad[span])
        return report

    def _objective(self, own: Tensor, batch: Batch) -> tuple[Tensor, StepReport]:
        names = gather(own)
        positives, negatives = batch.positives.to(self.device), batch.negatives.to(self.device)
        hard = mine(names.detach(), names.detach(), positives, negatives, self.mining)
        loss = self.loss(names, names, hard)
        # Every process computes the whole loss, and gradients are summed over processes.
        return loss / world()[1], StepReport(float(loss.detach()), *hard.counts())


def _cut(tokens: dict[str, Tensor], span: slice) -> dict[str, Tensor]:
    return {name: tensor[span] for name, tensor in tokens.items()}


def _random_state(device: torch.device) -> list[Tensor]:
    states = [torch.get_rng_state()]
    return [*states, torch.cuda.get_rng_state(device)] if device.type == "cuda" else states


@contextmanager
def _replayed(states: list[Tensor], device: torch.device) -> Iterator[None]:
    """Draw the same random numbers again, then go on from where the generators were."""
    now = _random_state(device)
    _set_random_state(states, device)
    try:
        yield
    finally:
        _set_random_state(now, device)


def _set_random_state(states: list[Tensor], device: torch.device) -> None:
    torch.set_rng_state(states[0])
    if device.type == "cuda":
        torch.cuda.set_rng_state(states[1], device)
