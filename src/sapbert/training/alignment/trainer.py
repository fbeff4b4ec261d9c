"""Self-alignment training (SapBERT): the objective that `loop` runs, and the model it writes.

One step is in `step`, the order of pairs in `batches`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Self

import torch
from torch import nn

from sapbert.artifacts import Draft
from sapbert.encoder.adapters import trainable_parameters
from sapbert.encoder.loading import load_encoder
from sapbert.encoder.model_folder import ADAPTER_FOLDER, save_model
from sapbert.encoder.transformer import TransformerEncoder
from sapbert.errors import ConfigError
from sapbert.pairs.artifact import Pairs
from sapbert.tokens.pooling import Pooling
from sapbert.training.alignment.adapt import adapt
from sapbert.training.alignment.batches import Batches
from sapbert.training.alignment.lora import merge_lora, save_lora
from sapbert.training.alignment.losses import make_loss
from sapbert.training.alignment.mining import MiningSettings
from sapbert.training.alignment.step import AlignmentStep
from sapbert.training.alignment.step_selection import select_step
from sapbert.training.base_encoder import DTYPES
from sapbert.training.distributed import world
from sapbert.training.held_out import retrieval, split_pairs
from sapbert.training.loop import Evaluate, OnStep, ignore_step, run_training
from sapbert.training.model_card import model_card, pairs_data
from sapbert.training.objective import LEARNING_RATE_FACTOR, TrainingStep, adamw
from sapbert.training.settings import TrainSettings

KIND = "model"
_METHOD = "self-alignment pretraining (SapBERT, Liu et al., NAACL 2021)"


def train(
    pairs: Pairs,
    base: str,
    target: Path,
    settings: TrainSettings,
    *,
    device: torch.device,
    resume: bool = False,
    overwrite: bool = False,
    evaluate: Evaluate | None = None,
    on_step: OnStep = ignore_step,
) -> None:
    """Train the encoder `base` on `pairs` and write the model folder to `target`.

    With `resume`, continue from the newest complete checkpoint of the interrupted run for `target`.
    `evaluate` is called every `evaluate_every` steps, and its metrics are written to the metrics file and the
    model card; the default is `retrieval`, the fraction of held-out synonyms found.
    """
    run_training(
        partial(_SelfAlignment.start, pairs, base, settings, device, evaluate),
        target,
        settings,
        device=device,
        resume=resume,
        overwrite=overwrite,
        on_step=on_step,
        kind=KIND,
    )


@dataclass(frozen=True, slots=True)
class _SelfAlignment:
    """Pulls names of one concept together; implements `objective.Objective`."""

    pairs: Pairs
    batches: Batches
    encoder: TransformerEncoder
    step: AlignmentStep
    settings: TrainSettings
    evaluate: Evaluate
    origin: Mapping[str, str]
    """Name and fingerprint of the base."""
    total: int

    @classmethod
    def start(
        cls,
        pairs: Pairs,
        base: str,
        settings: TrainSettings,
        device: torch.device,
        evaluate: Evaluate | None,
    ) -> Self:
        """Load the base encoder and prepare the run."""
        rank, processes = world()
        loss = make_loss(settings.loss, settings.loss_settings)
        mining = MiningSettings(margin=settings.margin, triplets=settings.triplets)
        encoder, origin = _load(base, settings, device)
        if settings.matryoshka_dim is not None and settings.matryoshka_dim >= encoder.dimension:
            raise ConfigError(
                f"matryoshka_dim must be less than the {encoder.dimension} dimensions of {base}, "
                f"got {settings.matryoshka_dim}"
            )
        split = split_pairs(pairs, held_out_concepts=settings.held_out, seed=settings.seed)
        batches = Batches(
            pairs,
            split.train,
            encoder.tokenizer,
            batch_size=settings.batch_size,
            max_length=settings.max_length,
            seed=settings.seed,
            rank=rank,
            world=processes,
        )
        encode = encoder.training_forward(DTYPES[settings.precision])
        step = AlignmentStep(encode, loss, mining, device, settings.chunk, settings.matryoshka_dim)
        total = max(round(settings.epochs * batches.steps_per_epoch), 1)
        return cls(
            pairs,
            batches,
            encoder,
            step,
            settings,
            evaluate or partial(retrieval, pairs, split.held_out),
            origin,
            total,
        )

    @property
    def module(self) -> nn.Module:
        """The encoder."""
        return self.encoder.model

    @property
    def names_per_step(self) -> int:
        """Two names per pair."""
        return 2 * self.settings.batch_size

    @property
    def evaluate_every(self) -> int:
        """Steps between measurements, from the settings."""
        return self.settings.evaluate_every

    @property
    def described(self) -> Mapping[str, Any]:
        """The pairs, the base and the settings."""
        return {"pairs": self.pairs.manifest.fingerprint, **self.origin, **asdict(self.settings)}

    def optimizer(self) -> torch.optim.Optimizer:
        """Return AdamW for the parameters that are not frozen."""
        return adamw([{"params": trainable_parameters(self.module), LEARNING_RATE_FACTOR: 1}], self.settings)

    def steps(self, done: int, optimizer: torch.optim.Optimizer) -> Iterator[TrainingStep]:
        """Yield the remaining steps, in the fastest implementation for this model and device."""
        if done >= self.total:
            return iter(())
        example = next(self.batches.after(done, done + 1))
        prepare = select_step(
            self.step, self.encoder, optimizer, self.settings, example=example, steps=self.total
        )
        return self.batches.prepared(done, self.total, prepare)

    def measure(self, _done: int) -> Mapping[str, float]:
        """Measure the encoder."""
        return self.evaluate(self.encoder)

    def finish(self) -> Mapping[str, float]:
        """Interpolate between the base's weights and the trained ones if set, and measure the result."""
        if self.settings.weight_interpolation == 1:
            return {}
        before, _ = load_encoder(self.origin["base"])
        untrained = before.state_dict()
        with torch.no_grad():
            for name, value in self.module.named_parameters():
                value.lerp_(untrained[name].to(value), 1 - self.settings.weight_interpolation)
        return {f"interpolated_{name}": figure for name, figure in self.evaluate(self.encoder).items()}

    def state(self) -> dict[str, Any]:
        """Return nothing: the order of pairs depends only on the seed."""
        return {}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Do nothing."""

    def write(self, draft: Draft, metrics: Sequence[Mapping[str, Any]]) -> None:
        """Write the model folder, with LoRA updates merged."""
        settings, base, model = self.settings, self.origin["base"], self.encoder.model
        if settings.adapter == "lora":
            save_lora(model, draft.path / ADAPTER_FOLDER)
            merge_lora(model)
        save_model(
            draft.path,
            model,
            self.encoder.tokenizer,
            pooling=self.encoder.pooling,
            max_length=settings.max_length,
            card=model_card(
                base, _METHOD, pairs_data(self.pairs), asdict(settings), metrics, adapter=settings.adapter
            ),
        )
        draft.seal(
            KIND,
            fingerprint=self.encoder.fingerprint,
            settings=self.described,
            inputs={
                self.pairs.path.name: {"fingerprint": self.pairs.manifest.fingerprint},
                "base": {"name": base, "fingerprint": self.origin["base_fingerprint"]},
            },
            counts={"steps": self.total},
        )


def _load(
    base: str, settings: TrainSettings, device: torch.device
) -> tuple[TransformerEncoder, dict[str, str]]:
    """Load the base and add adapters; return also the base's name and fingerprint."""
    model, tokenizer = load_encoder(base)
    pooling = Pooling(settings.pooling)
    encoder = TransformerEncoder(model, tokenizer, pooling=pooling, max_length=settings.max_length)
    # Checkpoints omit frozen weights, so a run can only be resumed with the same base.
    origin = {"base": base, "base_fingerprint": encoder.fingerprint}
    adapt(model, settings)
    model.to(device)  # type: ignore[arg-type]  # the stub knows only strings
    return encoder, origin
