"""What the training loop expects of a method: an `Objective` that yields steps.

Self-alignment, BioSyn, the reranker and the flash encoder each implement `Objective`; `loop` runs any of
them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from sapbert.artifacts import Draft
from sapbert.training.settings import TransformerSettings

LEARNING_RATE_FACTOR = "factor"
"""Key of an optimizer's parameter group: the group's learning rate relative to that of the run."""
Scale = Callable[[Tensor], Tensor]
"""Scales a loss before its gradient is taken, as fp16 training needs."""


@dataclass(frozen=True, slots=True)
class StepReport:
    """Figures of one step. They stay on the device; reading one waits for the end of the step."""

    loss: Tensor
    positives: Tensor
    """Number of hard positive pairs."""
    negatives: Tensor
    """Number of hard negative pairs."""


def adamw(groups: list[dict[str, Any]], settings: TransformerSettings) -> torch.optim.Optimizer:
    """Return AdamW for parameter groups, each with its `LEARNING_RATE_FACTOR`."""
    device = groups[0]["params"][0].device
    return torch.optim.AdamW(
        groups,
        lr=settings.learning_rate,
        weight_decay=settings.weight_decay,
        fused=device.type in ("cuda", "cpu"),
    )


def optimizer_step(optimizer: torch.optim.Optimizer) -> None:
    """Apply the gradients to the parameters; the default of `TrainingStep.update`."""
    optimizer.step()


@dataclass(frozen=True, slots=True)
class TrainingStep:
    """One step of a run, with its batch prepared."""

    backward: Callable[[Scale], StepReport]
    """Computes the loss and adds its gradient to the parameters."""
    update: Callable[[torch.optim.Optimizer], None] = optimizer_step
    """Applies the gradients. A step may replace it if `backward` has already updated the parameters."""


class Objective(Protocol):
    """A training method with its model and data."""

    @property
    def module(self) -> nn.Module:
        """Everything that is trained."""
        ...

    @property
    def total(self) -> int:
        """Number of steps of the whole run."""
        ...

    @property
    def names_per_step(self) -> int:
        """Names encoded per step, for the reported speed."""
        ...

    @property
    def evaluate_every(self) -> int:
        """Steps between measurements."""
        ...

    @property
    def described(self) -> Mapping[str, Any]:
        """Inputs and settings; a run resumes only from checkpoints for which these are equal."""
        ...

    def optimizer(self) -> torch.optim.Optimizer:
        """Return a new optimizer; each of its parameter groups has a `LEARNING_RATE_FACTOR`."""
        ...

    def steps(self, done: int, optimizer: torch.optim.Optimizer) -> Iterator[TrainingStep]:
        """Yield all steps after the first `done`.

        The loop calls this once, after a checkpoint has been restored and with `module` in training mode.
        `optimizer` is the one it later passes to `TrainingStep.update`.
        """
        ...

    def measure(self, done: int) -> Mapping[str, float]:
        """Return metrics after `done` steps."""
        ...

    def finish(self) -> Mapping[str, float]:
        """Change the model after the last step, if needed, and return new metrics. Every process calls it."""
        ...

    def state(self) -> dict[str, Any]:
        """Return everything the next step depends on, except parameters and optimizer."""
        ...

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore what `state` returned."""
        ...

    def write(self, draft: Draft, metrics: Sequence[Mapping[str, Any]]) -> None:
        """Write the model with a model card that reports `metrics`, and seal the artifact."""
        ...
