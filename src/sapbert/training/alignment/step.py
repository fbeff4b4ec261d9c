"""One training step: encode the names of a batch, mine hard pairs, and send the gradient back.

A batch that does not fit in memory is encoded in chunks, twice: first without a graph, to get every
embedding and, from the loss over all of them, its gradient; then chunk by chunk with a graph, to carry that
gradient into the parameters. So the whole batch serves as negatives whatever the memory, and the result
is that of one large pass: dropout is replayed by restoring the random state of each chunk.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional
from transformers import PreTrainedModel

from sapbert.encoder.packing import Packed, can_pack
from sapbert.encoder.transformer import TransformerEncoder
from sapbert.gpu.bert import RowEncoder, RowTensors, can_lay
from sapbert.gpu.rows import Rows
from sapbert.gpu.transfer import to_device
from sapbert.tokens.batching import Rectangle, TokenRows, plan_batches
from sapbert.tokens.pooling import Pooling, pool
from sapbert.training.alignment.batches import Batch
from sapbert.training.alignment.losses import Loss
from sapbert.training.alignment.mining import HardPairs, MiningSettings, mine, pair_masks
from sapbert.training.distributed import gather, world

_CPU_TOKENS = 2048
"""Tokens, padding included, of a rectangle on a CPU."""
Scale = Callable[[Tensor], Tensor]
"""What a loss passes through before its gradient is taken, in mixed precision."""


@dataclass(frozen=True, slots=True)
class StepReport:
    """What one step found; still on the device, as to read it is to wait for the step's end."""

    loss: Tensor
    positives: Tensor
    """Hard positive pairs."""
    negatives: Tensor
    """Hard negative pairs."""


class Encode:
    """Turns tokens into unit vectors with a graph, in mixed precision where asked.

    On a GPU names are laid into rows where bfloat16 is asked for and the encoder allows, which takes a tenth
    of the launches. Else they are packed without padding where the encoder allows. Else names of like length
    are encoded together on a CPU, since a padded token costs as much as a real one; a GPU is better served by
    one large rectangle. In rows the gradient of what was encoded is to be taken before more is: the weights
    are copied anew each time.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        *,
        pad_id: int,
        pooling: Pooling,
        max_length: int,
        dtype: torch.dtype | None,
    ) -> None:
        self._model, self._pad_id, self._pooling, self._dtype = model, pad_id, pooling, dtype
        # Mean over all tokens counts padding, so its amount must not depend on the batch.
        self._width = max_length if pooling is Pooling.MEAN_ALL else None
        self._pack = self._width is None and can_pack(model)
        self.lays = (
            dtype is torch.bfloat16
            and model.device.type == "cuda"
            and all(parameter.requires_grad for parameter in model.parameters())
            and can_lay(model, pooling, max_length)
        )
        """Whether names are laid into rows."""

    @classmethod
    def of(cls, encoder: TransformerEncoder, dtype: torch.dtype | None) -> Self:
        """Encode as `encoder` does."""
        return cls(
            encoder.model,
            pad_id=encoder.tokenizer.pad_token_id,
            pooling=encoder.pooling,
            max_length=encoder.max_length,
            dtype=dtype,
        )

    def __call__(self, tokens: TokenRows) -> Tensor:
        """Return the unit vectors of names.  # (names, dim)"""
        device, every = self._model.device, np.arange(len(tokens.lengths))
        if self.lays:
            return functional.normalize(self._in_rows(tokens), dim=-1)
        with torch.autocast(device.type, dtype=self._dtype, enabled=self._dtype is not None):
            if self._pack:
                pooled = Packed.of(tokens, every, device).encode(self._model, self._pooling)
            else:
                pooled = self._rectangles(tokens, every)
        return functional.normalize(pooled, dim=-1)

    def _in_rows(self, tokens: TokenRows) -> Tensor:
        self._rows.refresh()
        rows = Rows.of(tokens, self._pooling, pad_id=self._pad_id, width=self._rows.width)
        return self._rows(RowTensors.of(rows, self._model.device))

    @cached_property
    def _rows(self) -> RowEncoder:
        return RowEncoder.fastest(self._model, self._pooling, dtype=torch.bfloat16)

    def _rectangles(self, tokens: TokenRows, every: NDArray[np.int64]) -> Tensor:
        device = self._model.device
        budget = _CPU_TOKENS if device.type == "cpu" else sys.maxsize
        groups = plan_batches(tokens.lengths, tokens=budget, rows=len(every))
        parts = [self._forward(tokens.pad(group, pad_id=self._pad_id, width=self._width)) for group in groups]
        return torch.cat(parts)[to_device(np.argsort(np.concatenate(groups)), device)]

    def _forward(self, batch: Rectangle) -> Tensor:
        ids, attention, special = (
            to_device(part, self._model.device) for part in (batch.ids, batch.attention, batch.special)
        )  # (rows, tokens)
        hidden = self._model(input_ids=ids, attention_mask=attention.long()).last_hidden_state
        return pool(hidden.float(), attention, special, self._pooling)  # (rows, dim)


@dataclass(frozen=True, slots=True)
class Step:
    """Computes the gradient of one batch."""

    encode: Encode
    loss: Loss
    mining: MiningSettings
    device: torch.device
    chunk: int | None
    """Names encoded at a time; None encodes the batch in one pass."""
    leading: int | None = None
    """Leading dimensions that are to work alone as well; None asks it of all together only."""

    def trained_by(self, optimizer: torch.optim.Optimizer) -> None:
        """Leave the parameters to the optimizer."""

    def prepare(self, batch: Batch) -> Callable[[Scale], StepReport]:
        """Return what takes the step."""
        return partial(self, batch)

    def __call__(self, batch: Batch, scale: Scale) -> StepReport:
        """Add the gradient of the batch to the parameters; `scale` is that of mixed precision."""
        names, chunk = len(batch.tokens.lengths), self.chunk
        if chunk is None or names <= chunk:
            objective, report = self._objective_of(self.encode(batch.tokens), batch)
            scale(objective).backward()
            return report
        return self._in_chunks(
            batch, scale, [(start, min(start + chunk, names)) for start in range(0, names, chunk)]
        )

    def _in_chunks(self, batch: Batch, scale: Scale, chunks: list[tuple[int, int]]) -> StepReport:
        states, parts = [], []
        with torch.no_grad():
            for chunk in chunks:
                states.append(random_state(self.device))
                parts.append(self.encode(batch.tokens.span(*chunk)))
        embeddings = torch.cat(parts).requires_grad_()
        objective, report = self._objective_of(embeddings, batch)
        scale(objective).backward()
        assert embeddings.grad is not None
        for (start, stop), state in zip(chunks, states, strict=True):
            with replayed(state, self.device):
                again = self.encode(batch.tokens.span(start, stop))
            again.backward(embeddings.grad[start:stop])
        return report

    def _objective_of(self, own: Tensor, batch: Batch) -> tuple[Tensor, StepReport]:
        labels, share = (to_device(array, self.device) for array in (batch.labels, batch.share))
        return self.objective(own, labels, share)

    def objective(self, own: Tensor, labels: Tensor, share: Tensor) -> tuple[Tensor, StepReport]:
        """Return what is minimised and what was found, of the own unit vectors and what `Batch` tells."""
        names = gather(own)
        positives, negatives = pair_masks(labels, share)
        loss, hard = self._loss_of(names, positives, negatives)
        if self.leading is not None:
            shorter = functional.normalize(names[:, : self.leading], dim=-1)
            loss = (loss + self._loss_of(shorter, positives, negatives)[0]) / 2
        # Every process computes the whole loss, and gradients are summed over processes.
        return loss / world()[1], StepReport(loss.detach(), hard.positives.sum(), hard.negatives.sum())

    def _loss_of(self, names: Tensor, positives: Tensor, negatives: Tensor) -> tuple[Tensor, HardPairs]:
        """Mine the pairs of these vectors; returns their loss and them."""
        hard = mine(names.detach(), names.detach(), positives, negatives, self.mining)
        return self.loss(names, names, hard), hard


def seed_generators(seed: int, device: torch.device) -> None:
    """Seed what a step draws from, as `torch.manual_seed` does, which asks for all kinds of devices too."""
    if device.type not in ("cpu", "cuda"):
        torch.manual_seed(seed)
        return
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        index = torch.cuda.current_device() if device.index is None else device.index
        torch.cuda.default_generators[index].manual_seed(seed)


def random_state(device: torch.device) -> list[Tensor]:
    """Return the state of the generators that a step draws from."""
    states = [torch.get_rng_state()]
    return [*states, torch.cuda.get_rng_state(device)] if device.type == "cuda" else states


@contextmanager
def replayed(states: list[Tensor], device: torch.device) -> Iterator[None]:
    """Draw the same random numbers again, then go on from where the generators were."""
    now = random_state(device)
    _set_random_state(states, device)
    try:
        yield
    finally:
        _set_random_state(now, device)


def _set_random_state(states: list[Tensor], device: torch.device) -> None:
    torch.set_rng_state(states[0])
    if device.type == "cuda":
        torch.cuda.set_rng_state(states[1], device)
