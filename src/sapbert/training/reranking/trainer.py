"""Train a cross-encoder to tell the right candidates of a mention from those that a search confused with it.

The loss is BioSyn's: how unlikely a softmax over the candidates of a mention makes the right ones together.
Candidates are those of a linker and stay the same: unlike BioSyn's, what is trained here does not find them.
Training starts from the order of the search (`encoder.cross_encoder`: direction zero, its score weighed), so
a reranker has to earn every change. Mentions without a right candidate teach nothing, but are measured.
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
from sapbert.training.mention_order import Epochs
from sapbert.training.model_card import input_list, reranker_card
from sapbert.training.objective import LEARNING_RATE_FACTOR, Scale, StepReport, TrainingStep
from sapbert.training.reranking.dataset import RerankerDataset, RerankExample
from sapbert.training.settings import RerankerSettings

_SCORE_WEIGHT = 20.0
"""What the score of the search counts at the start: cosines alone would leave a softmax almost flat."""
_HEAD_RATE = 0.01
"""Learning rate of direction and weight, which begin at nothing and have far to go."""


def train_reranker(
    examples: RerankerDataset,
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

    With `resume`, go on from the newest whole checkpoint of the run that was to write `target`.
    """
    run_training(
        lambda: _Reranking(examples, base, settings, device),
        target,
        settings,
        device=device,
        resume=resume,
        overwrite=overwrite,
        on_step=on_step,
    )


class _Learned(nn.Module):
    """All that is trained."""

    def __init__(self, encoder: nn.Module, dimension: int, device: torch.device) -> None:
        super().__init__()
        self.encoder = encoder
        self.direction = nn.Parameter(torch.zeros(dimension, device=device))
        self.score_weight = nn.Parameter(torch.tensor(_SCORE_WEIGHT, device=device))


class _Reranking:
    """Right candidates come first; fits `objective.Objective`."""

    def __init__(
        self, labelled: RerankerDataset, base: str, settings: RerankerSettings, device: torch.device
    ) -> None:
        self.labelled, self.settings, self._device = labelled, settings, device
        learned, self.held_out = labelled.split(settings.held_out, settings.seed)
        self._taught = [own for own in learned if any(own.is_right)]
        if not self._taught:
            raise SapbertError("no mention to learn from has a right candidate; is it the right index?")
        self.encoder = open_base_encoder(base, settings, device)
        self.origin = {"base": base, "base_fingerprint": self.encoder.fingerprint}
        self._separator = _separator(self.encoder, base)
        self._encode = self.encoder.training_forward(DTYPES[settings.precision])
        self.module = _Learned(self.encoder.model, self.encoder.dimension, device)
        self._epochs = Epochs(len(self._taught), settings)

    @property
    def total(self) -> int:
        """Steps of the whole run."""
        return self._epochs.total

    @property
    def names_per_step(self) -> int:
        """The candidates of each mention, at most."""
        return self.settings.batch_size * self.settings.candidates

    @property
    def evaluate_every(self) -> int:
        """An epoch."""
        return self._epochs.steps

    @property
    def described(self) -> Mapping[str, Any]:
        """The examples, the base and the settings."""
        return {"choices": self.labelled.fingerprint, **self.origin, **asdict(self.settings)}

    @property
    def counts(self) -> dict[str, int]:
        """Of mentions, by what was done with them."""
        return {"mentions": len(self._taught), "held-out mentions": len(self.held_out)}

    @property
    def head(self) -> Head:
        """What makes a reranker of the encoder, as it is now."""
        return Head(
            direction=tuple(self.module.direction.tolist()),
            score_weight=self.module.score_weight.item(),
            separator=self._separator,
            context=self.labelled.context,
        )

    def groups(self) -> list[dict[str, Any]]:
        """The encoder; and the head, which nothing pulls to zero."""
        rate = _HEAD_RATE / self.settings.learning_rate
        head = [self.module.direction, self.module.score_weight]
        return [
            {"params": trainable_parameters(self.encoder.model), LEARNING_RATE_FACTOR: 1},
            {"params": head, LEARNING_RATE_FACTOR: rate, "weight_decay": 0.0},
        ]

    def steps(self, done: int, _optimizer: torch.optim.Optimizer) -> Iterator[TrainingStep]:
        """Yield the remaining steps."""
        for _, batch in self._epochs.after(done):
            yield TrainingStep(partial(self._step, [self._taught[row] for row in batch.tolist()]))

    def measure(self, done: int) -> Mapping[str, float]:
        """Say of the held-out mentions how many have a right candidate, and how many have it first."""
        del done
        if not self.held_out:
            return {}
        scores = CrossEncoder(self.encoder, self.head).rerank([own.request for own in self.held_out])
        found = [any(own.is_right) for own in self.held_out]
        best = [
            there and own.is_right[given.argmax()]
            for own, there, given in zip(self.held_out, found, scores, strict=True)
        ]
        return {"held_out_found": float(np.mean(found)), "held_out_first": float(np.mean(best))}

    def finish(self) -> Mapping[str, float]:
        """Leave all as it is."""
        return {}

    def state(self) -> dict[str, Any]:
        """Nothing beside the parameters."""
        return {}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take up nothing."""

    def write(self, draft: Draft, metrics: Sequence[Mapping[str, Any]]) -> None:
        """Write the encoder, and the head that makes a reranker of it."""
        base, head = self.origin["base"], self.head
        data = (
            f"{len(self._taught):,} mentions with their candidates, fingerprint "
            f"`{self.labelled.fingerprint}`, from:\n\n{input_list(self.labelled.inputs)}"
        )
        save_model(
            draft.path / ENCODER,
            self.encoder.model,
            self.encoder.tokenizer,
            pooling=self.encoder.pooling,
            max_length=self.encoder.max_length,
            card="The encoder of a reranker, of no use alone: its vectors are of pairs of texts.\n",
        )
        write_head(draft.path, head)
        card = reranker_card(base, data, asdict(self.settings), metrics)
        (draft.path / "README.md").write_text(card, encoding="utf-8")
        draft.seal(
            KIND,
            fingerprint=fingerprint_of({"reranker": CrossEncoder(self.encoder, head).fingerprint}),
            settings={**self.described, "context": self.labelled.context},
            inputs={
                **self.labelled.inputs,
                "base": {"name": base, "fingerprint": self.origin["base_fingerprint"]},
            },
            counts={"steps": self.total, **self.counts},
            details={"score_weight": head.score_weight},
        )

    def _step(self, batch: Sequence[RerankExample], scale: Scale) -> StepReport:
        """Add the gradient of some mentions to the parameters."""
        right = _padded([own.is_right for own in batch])
        there = _padded([[True] * len(own.is_right) for own in batch])
        mask = to_device(there, self._device)  # (mentions, k)
        scores = torch.full(there.shape, -torch.inf, device=self._device)
        loss = marginal_loss(scores.masked_scatter(mask, self._scores(batch)), to_device(right, self._device))
        scale(loss).backward()
        counts = torch.tensor([right.sum(), there.sum() - right.sum()])
        return StepReport(loss.detach(), *counts.to(self._device))

    def _scores(self, batch: Sequence[RerankExample]) -> Tensor:
        """Score every candidate of some mentions, one after the other.  # (candidates,)"""
        head = self.head
        texts = [text for own in batch for text in head.texts(own.request)]
        searched = np.array([score for own in batch for score in own.request.scores], np.float32)
        tokens = tokenize(self.encoder.tokenizer, texts, max_length=self.encoder.max_length)
        vectors = self._encode(tokens)  # (candidates, dim)
        return vectors @ self.module.direction + self.module.score_weight * to_device(searched, self._device)


def _padded(rows: Sequence[Sequence[bool]]) -> NDArray[np.bool_]:
    """Lay rows under each other, filled up with False.  # (rows, longest)"""
    padded = np.zeros((len(rows), max(map(len, rows))), np.bool_)
    for own, row in zip(padded, rows, strict=True):
        own[: len(row)] = row
    return padded


def _separator(encoder: TransformerEncoder, base: str) -> str:
    """Return what stands between two texts, as this tokenizer spells it."""
    tokenizer = encoder.tokenizer
    separator: str | None = tokenizer.sep_token
    if (
        separator is None
        or tokenizer.sep_token_id
        not in tokenize(tokenizer, [f"a {separator} b"], max_length=encoder.max_length).ids[1:-1]
    ):
        raise ArtifactError(f"{base}: its tokenizer reads no separator between two texts; take another base")
    return separator
