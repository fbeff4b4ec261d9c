"""Select the fastest step for a model on its device: CUDA graphs if possible, else plain PyTorch.

CUDA graphs (`gpu.cuda_graph`) compute what `step.AlignmentStep` computes. They are possible for a plain BERT
that is fully trained in bfloat16 on one GPU, with a loss that works on masks. This is decided before the
first step: from the settings, and by capturing the graph of one example batch.
"""

from __future__ import annotations

import logging
from typing import Protocol

import torch

from sapbert.encoder.forward import Layout
from sapbert.encoder.transformer import TransformerEncoder
from sapbert.gpu.bert import RowEncoder
from sapbert.gpu.cuda_graph import CudaGraphStep
from sapbert.training.alignment.batches import PairBatch
from sapbert.training.alignment.losses import needs_pair_list
from sapbert.training.alignment.step import AlignmentStep
from sapbert.training.distributed import world
from sapbert.training.objective import StepReport, TrainingStep
from sapbert.training.settings import TrainSettings

_MIN_STEPS_TO_COMPILE = 5_000
"""In shorter runs `torch.compile`, half a minute, costs more than it saves."""
log = logging.getLogger(__name__)


class PrepareStep(Protocol):
    """Makes a training step of a batch; called ahead of time, in a thread."""

    def __call__(self, batch: PairBatch) -> TrainingStep:
        """Return the step of this batch."""
        ...


def select_step(
    plain: AlignmentStep,
    encoder: TransformerEncoder,
    optimizer: torch.optim.Optimizer,
    settings: TrainSettings,
    *,
    example: PairBatch,
    steps: int,
) -> PrepareStep:
    """Return a function that prepares the steps of a run in the fastest available implementation.

    `example` is a batch of the run: its graph is captured here, which changes neither weights nor random
    state. If that fails, a warning says why and the steps are those of `plain`. The encoder's model must be
    in training mode, and the optimizer restored from its checkpoint.
    """
    if not can_capture(plain):
        return plain.prepare
    for compiled in (True, False) if steps >= _MIN_STEPS_TO_COMPILE else (False,):
        step = _GraphSteps(_graph_step(plain, encoder, optimizer, settings, compiled=compiled))
        try:
            step.capture(example)
        except Exception as error:  # noqa: BLE001 - compilers and drivers raise errors of any type
            reason = str(error).partition("\n")[0]
            fallback = "retrying without torch.compile" if compiled else "falling back to PyTorch"
            log.warning("CUDA graph capture failed (%s); %s", reason, fallback)
        else:
            return step
    return plain.prepare


def can_capture(plain: AlignmentStep) -> bool:
    """Return whether the step can be a CUDA graph.

    `Layout.ROWS` already means a plain BERT, all of it trained, in bfloat16 on a GPU
    (`encoder.forward.choose_layout`). The batch must also be encoded in one pass, by one process, with a loss
    that works on masks.
    """
    return (
        plain.encode.layout is Layout.ROWS
        and plain.chunk is None
        and not needs_pair_list(plain.loss)
        and world()[1] == 1
    )


def _graph_step(
    plain: AlignmentStep,
    encoder: TransformerEncoder,
    optimizer: torch.optim.Optimizer,
    settings: TrainSettings,
    *,
    compiled: bool,
) -> CudaGraphStep[StepReport]:
    """Return the step as a CUDA graph.

    Without gradient clipping, the graph also updates the parameters if the optimizer allows it; `update` then
    does nothing.
    """
    return CudaGraphStep(
        RowEncoder.fastest(encoder.model, encoder.pooling, dtype=torch.bfloat16),
        plain.loss_and_report,
        pooling=encoder.pooling,
        pad_id=encoder.tokenizer.pad_token_id,
        compiled=compiled,
        # Clipping needs all gradients before the first parameter is updated.
        optimizer=optimizer if settings.clip is None else None,
    )


class _GraphSteps:
    """Makes training steps that replay CUDA graphs; implements `PrepareStep`."""

    def __init__(self, graphs: CudaGraphStep[StepReport]) -> None:
        self._graphs = graphs

    def capture(self, example: PairBatch) -> None:
        """Capture the graph for batches of this shape, without replaying it."""
        self._graphs.capture(self._graphs.pack(example.tokens, example.labels, example.shared_concept))

    def __call__(self, batch: PairBatch) -> TrainingStep:
        """Return the step of this batch."""
        packed = self._graphs.pack(batch.tokens, batch.labels, batch.shared_concept)
        # bfloat16 has the range of float32, so the loss needs no scale.
        return TrainingStep(lambda _scale: self._graphs.backward(packed), self._graphs.update)
