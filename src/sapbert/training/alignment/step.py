"""One training step in plain PyTorch: encode the names of a batch, mine hard pairs, backpropagate the loss.

A batch that does not fit in memory is encoded in chunks, twice: first without a graph, to get all embeddings
and, from the loss over all of them, the gradient of each embedding; then chunk by chunk with a graph, to
carry that gradient into the parameters. So the whole batch provides negatives whatever the memory, and the
result equals that of one large pass: dropout is replayed by restoring the random state of each chunk.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional

from sapbert.encoder.forward import TrainingForward
from sapbert.gpu.random_state import random_state, replayed_random_state
from sapbert.gpu.transfer import to_device
from sapbert.training.alignment.batches import PairBatch
from sapbert.training.alignment.losses import Loss
from sapbert.training.alignment.mining import HardPairs, MiningSettings, mine, pair_masks
from sapbert.training.distributed import gather, world
from sapbert.training.objective import Scale, StepReport, TrainingStep


@dataclass(frozen=True, slots=True)
class AlignmentStep:
    """Computes loss and gradient of one batch of pairs."""

    encode: TrainingForward
    loss: Loss
    mining: MiningSettings
    device: torch.device
    chunk: int | None
    """Names encoded at a time; None encodes the batch in one pass."""
    matryoshka_dim: int | None = None
    """First dimensions that are also trained as vectors of their own; None trains full vectors only."""

    def prepare(self, batch: PairBatch) -> TrainingStep:
        """Return the step of this batch."""
        return TrainingStep(partial(self.backward, batch))

    def backward(self, batch: PairBatch, scale: Scale) -> StepReport:
        """Add the gradient of the batch to the parameters."""
        names, chunk = len(batch.tokens.lengths), self.chunk
        if chunk is None or names <= chunk:
            loss, report = self._batch_loss(self.encode(batch.tokens), batch)
            scale(loss).backward()
            return report
        chunks = [(start, min(start + chunk, names)) for start in range(0, names, chunk)]
        return self._backward_in_chunks(batch, scale, chunks)

    def _backward_in_chunks(
        self, batch: PairBatch, scale: Scale, chunks: list[tuple[int, int]]
    ) -> StepReport:
        states, parts = [], []
        with torch.no_grad():
            for chunk in chunks:
                states.append(random_state(self.device))
                parts.append(self.encode(batch.tokens.span(*chunk)))
        embeddings = torch.cat(parts).requires_grad_()
        loss, report = self._batch_loss(embeddings, batch)
        scale(loss).backward()
        assert embeddings.grad is not None
        for (start, stop), state in zip(chunks, states, strict=True):
            with replayed_random_state(state, self.device):
                again = self.encode(batch.tokens.span(start, stop))
            again.backward(embeddings.grad[start:stop])
        return report

    def _batch_loss(self, local: Tensor, batch: PairBatch) -> tuple[Tensor, StepReport]:
        labels, shared = (to_device(array, self.device) for array in (batch.labels, batch.shared_concept))
        return self.loss_and_report(local, labels, shared)

    def loss_and_report(
        self, local: Tensor, labels: Tensor, shared_concept: Tensor
    ) -> tuple[Tensor, StepReport]:
        """Return the loss to minimize and the report of the step.

        `local` are the unit vectors of this process; for the others see `PairBatch`.
        """
        names = gather(local)
        positives, negatives = pair_masks(labels, shared_concept)
        loss, hard = self._mined_loss(names, positives, negatives)
        if self.matryoshka_dim is not None:
            shorter = functional.normalize(names[:, : self.matryoshka_dim], dim=-1)
            loss = (loss + self._mined_loss(shorter, positives, negatives)[0]) / 2
        # Every process computes the whole loss, and gradients are summed over processes.
        return loss / world()[1], StepReport(loss.detach(), hard.positives.sum(), hard.negatives.sum())

    def _mined_loss(self, names: Tensor, positives: Tensor, negatives: Tensor) -> tuple[Tensor, HardPairs]:
        """Mine hard pairs; return their loss and the pairs."""
        hard = mine(names.detach(), names.detach(), positives, negatives, self.mining)
        return self.loss(names, names, hard), hard
