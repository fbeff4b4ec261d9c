"""Train a cross-encoder to rank the right candidates of a mention above the others that a search found.

The loss is BioSyn's (`training.biosyn.trainer.marginal_loss`). Candidates are those of a linker and do not
change: unlike in BioSyn, the trained model does not search them. Training starts from the order of the search
(`encoder.cross_encoder`: direction zero, a positive weight of the search score). Mentions without a right
candidate are not trained on, but are measured.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from sapbert.artifacts import Draft, fingerprint_of
from sapbert.encoder.adapters import trainable_parameters
from sapbert.encoder.cross_encoder import ENCODER, KIND, CrossEncoder, Head, write_head
from sapbert.encoder.model_folder import save_model
from sapbert.encoder.transformer import TransformerEncoder, tokenize
from sapbert.errors import ArtifactError, SapbertError
from sapbert.gpu.transfer import to_device
from sapbert.training.base_encoder import DTYPES, open_base_encoder
from sapbert.training.biosyn.trainer import marginal_loss
from sapbert.training.loop import OnStep, ignore_step, run_training
from sapbert.training.mention_order import MentionOrder
from sapbert.training.model_card import input_list, reranker_card
from sapbert.training.objective import LEARNING_RATE_FACTOR, Scale, StepReport, TrainingStep, adamw
from sapbert.training.reranking.dataset import RerankerDataset, RerankExample
from sapbert.training.settings import RerankerSettings

_SCORE_WEIGHT = 20.0
"""Initial weight of the search score: unscaled cosines would leave a softmax almost flat."""
_HEAD_RATE = 0.01
"""Learning rate of direction and score weight, which are not pretrained."""


def train_reranker(
    dataset: RerankerDataset,
    base: str,
    target: Path,
    settings: RerankerSettings,
    *,
    device: torch.device,
    resume: bool = False,
    overwrite: bool = False,
    on_step: OnStep = ignore_step,
) -> None:
    """Train the encoder `base` to rerank, and write the folder of the reranker to `target`.

    With `resume`, continue from the newest valid checkpoint of an interrupted run for `target`.
    """
    run_training(
        lambda: _Reranking(dataset, base, settings, device),
        target,
        settings,
        device=device,
        resume=resume,
        overwrite=overwrite,
        on_step=on_step,
        kind=KIND,
    )


class _TrainedModule(nn.Module):
    """All trained parameters."""

    def __init__(self, encoder: nn.Module, dimension: int, device: torch.device) -> None:
        super().__init__()
        self.encoder = encoder
        self.direction = nn.Parameter(torch.zeros(dimension, device=device))
        self.score_weight = nn.Parameter(torch.tensor(_SCORE_WEIGHT, device=device))


class _Reranking:
    """Ranks right candidates first; implements `objective.Objective`."""

    def __init__(
        self, dataset: RerankerDataset, base: str, settings: RerankerSettings, device: torch.device
    ) -> None:
        self.dataset, self.settings, self._device = dataset, settings, device
        training, self.held_out = dataset.split(settings.held_out, settings.seed)
        self._training = [example for example in training if any(example.is_right)]
        if not self._training:
            raise SapbertError("no training mention has a right candidate; is this the right index?")
        self.encoder = open_base_encoder(base, settings, device)
        self.origin = {"base": base, "base_fingerprint": self.encoder.fingerprint}
        self._separator = _separator(self.encoder, base)
        self._encode = self.encoder.training_forward(DTYPES[settings.precision])
        self.module = _TrainedModule(self.encoder.model, self.encoder.dimension, device)
        self._order = MentionOrder(len(self._training), settings)

    @property
    def total(self) -> int:
        """Number of steps of the whole run."""
        return self._order.total

    @property
    def names_per_step(self) -> int:
        """Maximum number of candidates per step."""
        return self.settings.batch_size * self.settings.candidates

    @property
    def evaluate_every(self) -> int:
        """Number of steps of an epoch."""
        return self._order.steps_per_epoch

    @property
    def described(self) -> Mapping[str, Any]:
        """The examples, the base and the settings."""
        return {"choices": self.dataset.fingerprint, **self.origin, **asdict(self.settings)}

    @property
    def counts(self) -> dict[str, int]:
        """Number of training and of held-out mentions."""
        return {"mentions": len(self._training), "held-out mentions": len(self.held_out)}

    @property
    def head(self) -> Head:
        """The current head of the reranker."""
        return Head(
            direction=tuple(self.module.direction.tolist()),
            score_weight=self.module.score_weight.item(),
            separator=self._separator,
            context=self.dataset.context,
        )

    def optimizer(self) -> torch.optim.Optimizer:
        """Return AdamW for the encoder, and for the head without weight decay."""
        rate = _HEAD_RATE / self.settings.learning_rate
        head = [self.module.direction, self.module.score_weight]
        groups = [
            {"params": trainable_parameters(self.encoder.model), LEARNING_RATE_FACTOR: 1},
            {"params": head, LEARNING_RATE_FACTOR: rate, "weight_decay": 0.0},
        ]
        return adamw(groups, self.settings)

    def steps(self, done: int, _optimizer: torch.optim.Optimizer) -> Iterator[TrainingStep]:
        """Yield the remaining steps."""
        for _, batch in self._order.batches(done):
            yield TrainingStep(partial(self._step, [self._training[row] for row in batch.tolist()]))

    def measure(self, done: int) -> Mapping[str, float]:
        """Return the shares of held-out mentions with a right candidate, and with a right one first."""
        del done
        if not self.held_out:
            return {}
        reranker = CrossEncoder(self.encoder, self.head)
        scores = reranker.rerank([example.request for example in self.held_out])
        has_right = [any(example.is_right) for example in self.held_out]
        first = [
            reachable and example.is_right[example_scores.argmax()]
            for example, reachable, example_scores in zip(self.held_out, has_right, scores, strict=True)
        ]
        return {"held_out_found": float(np.mean(has_right)), "held_out_first": float(np.mean(first))}

    def finish(self) -> Mapping[str, float]:
        """Change nothing."""
        return {}

    def state(self) -> dict[str, Any]:
        """Nothing besides the parameters."""
        return {}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore nothing."""

    def write(self, draft: Draft, metrics: Sequence[Mapping[str, Any]]) -> None:
        """Write the encoder and the head of the reranker."""
        base, head = self.origin["base"], self.head
        data = (
            f"{len(self._training):,} mentions with their candidates, fingerprint "
            f"`{self.dataset.fingerprint}`, from:\n\n{input_list(self.dataset.inputs)}"
        )
        save_model(
            draft.path / ENCODER,
            self.encoder.model,
            self.encoder.tokenizer,
            pooling=self.encoder.pooling,
            max_length=self.encoder.max_length,
            card="The encoder of a reranker, for pairs of texts; do not use it to encode names.\n",
        )
        write_head(draft.path, head)
        card = reranker_card(base, data, asdict(self.settings), metrics)
        (draft.path / "README.md").write_text(card, encoding="utf-8")
        draft.seal(
            KIND,
            fingerprint=fingerprint_of({"reranker": CrossEncoder(self.encoder, head).fingerprint}),
            settings={**self.described, "context": self.dataset.context},
            inputs={
                **self.dataset.inputs,
                "base": {"name": base, "fingerprint": self.origin["base_fingerprint"]},
            },
            counts={"steps": self.total, **self.counts},
            details={"score_weight": head.score_weight},
        )

    def _step(self, batch: Sequence[RerankExample], scale: Scale) -> StepReport:
        """Compute the loss of a batch of mentions and add its gradient to the parameters."""
        right = _padded([example.is_right for example in batch])
        exists = _padded([[True] * len(example.is_right) for example in batch])
        mask = to_device(exists, self._device)  # (mentions, k)
        scores = torch.full(exists.shape, -torch.inf, device=self._device)
        loss = marginal_loss(scores.masked_scatter(mask, self._scores(batch)), to_device(right, self._device))
        scale(loss).backward()
        counts = torch.tensor([right.sum(), exists.sum() - right.sum()])
        return StepReport(loss.detach(), *counts.to(self._device))

    def _scores(self, batch: Sequence[RerankExample]) -> Tensor:
        """Score all candidates of a batch of mentions, concatenated.  # (candidates,)"""
        head = self.head
        texts = [text for example in batch for text in head.texts(example.request)]
        search_scores = np.array([score for example in batch for score in example.request.scores], np.float32)
        tokens = tokenize(self.encoder.tokenizer, texts, max_length=self.encoder.max_length)
        vectors = self._encode(tokens)  # (candidates, dim)
        weighted = self.module.score_weight * to_device(search_scores, self._device)
        return vectors @ self.module.direction + weighted


def _padded(rows: Sequence[Sequence[bool]]) -> NDArray[np.bool_]:
    """Stack rows, padded with False.  # (rows, longest)"""
    padded = np.zeros((len(rows), max(map(len, rows))), np.bool_)
    for target, row in zip(padded, rows, strict=True):
        target[: len(row)] = row
    return padded


def _separator(encoder: TransformerEncoder, base: str) -> str:
    """Return the separator token between two texts, as the tokenizer spells it."""
    tokenizer = encoder.tokenizer
    separator: str | None = tokenizer.sep_token
    if (
        separator is None
        or tokenizer.sep_token_id
        not in tokenize(tokenizer, [f"a {separator} b"], max_length=encoder.max_length).ids[1:-1]
    ):
        raise ArtifactError(f"{base}: the tokenizer has no separator token; use another base")
    return separator
