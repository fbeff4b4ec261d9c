"""Training of flash encoders: the objective that `loop` runs, and the encoder that it writes.

One step is in `step`, its loss in `loss`, the order of pairs in `batches`. The trained table is quantized at
the end; the metrics contain the retrieval before and after.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from sapbert.artifacts import Draft
from sapbert.encoder.flash.encoder import FlashEncoder, write_flash_encoder
from sapbert.encoder.flash.product_codes import ProductCodes, quantize_table
from sapbert.errors import ConfigError
from sapbert.pairs.artifact import Pairs
from sapbert.training.distributed import world
from sapbert.training.flash.batches import TrainingNames, batch_size
from sapbert.training.flash.loss import ContrastiveLoss
from sapbert.training.flash.row_adagrad import RowAdagrad
from sapbert.training.flash.step import FlashStep
from sapbert.training.flash.table import FlashTable, Start, TableEncoder, start_table
from sapbert.training.flash.teacher import Teacher
from sapbert.training.held_out import retrieval, split_pairs
from sapbert.training.loop import OnStep, ignore_step, run_training
from sapbert.training.model_card import flash_card, pairs_data
from sapbert.training.objective import LEARNING_RATE_FACTOR, TrainingStep
from sapbert.training.settings import FlashSettings

KIND = "encoder"
_BATCH_SIZE = {"cuda": 4096, "cpu": 1024}
_STEPS = {"cuda": 1500, "cpu": 2000}
_MOST_EPOCHS = 30
"""Passes over the pairs after which more steps by default would only cost time."""
_BITS_PER_CODE = 8


def train_flash(
    pairs: Pairs,
    target: Path,
    settings: FlashSettings,
    *,
    base: str | None = None,
    teacher: Teacher | None = None,
    device: torch.device,
    resume: bool = False,
    overwrite: bool = False,
    on_step: OnStep = ignore_step,
) -> None:
    """Train a flash encoder on `pairs` and write its folder to `target`.

    Training starts from the flash encoder `base`, or from random rows. With `resume`, continue from the
    newest complete checkpoint of the interrupted run for `target`.
    """
    run_training(
        lambda: _FlashTraining(pairs, settings, base, teacher, device),
        target,
        settings,
        device=device,
        resume=resume,
        overwrite=overwrite,
        on_step=on_step,
    )


class _FlashTraining:
    """Pulls names of one concept together; implements `objective.Objective`."""

    def __init__(
        self,
        pairs: Pairs,
        settings: FlashSettings,
        base: str | None,
        teacher: Teacher | None,
        device: torch.device,
    ) -> None:
        if world()[1] > 1:
            raise ConfigError("this command trains in one process; start it without torchrun")
        self.pairs = pairs
        start = start_table(base, settings, names=len(pairs.names))
        self.spec = start.spec
        self._split = split_pairs(pairs, held_out_concepts=settings.held_out, seed=settings.seed)
        self.names = TrainingNames.prepare(
            pairs, self._split.train, self.spec, misspelt=settings.misspelt, seed=settings.seed
        )
        self.settings = _with_defaults(settings, device, len(self.names.pairs))
        self._used = start.used | self.names.used_rows(self.spec.rows)
        # Random values of features that were not trained on would only disturb the vectors of new names.
        start.rows[~self._used] = 0
        self.module = FlashTable(torch.from_numpy(start.rows).to(device))
        self._codes: ProductCodes | None = None
        self._origin = _origin(base, start, teacher)
        self._step = FlashStep(
            self.module.rows,
            self.names,
            pairs,
            ContrastiveLoss(settings.temperature, settings.teacher_weight if teacher else 0),
            torch.from_numpy(self.names.features.ids).to(device),
            None if teacher is None else teacher.vectors,
        )

    @property
    def total(self) -> int:
        """Number of steps of the whole run."""
        return self.settings.steps or 0

    @property
    def names_per_step(self) -> int:
        """Two names per pair."""
        return 2 * (self.settings.batch_size or 0)

    @property
    def evaluate_every(self) -> int:
        """Steps between measurements, from the settings."""
        return self.settings.evaluate_every

    @property
    def described(self) -> Mapping[str, Any]:
        """The pairs, the base, the teacher, the tables of features and the settings."""
        return {
            "pairs": self.pairs.manifest.fingerprint,
            **{f"{name}_fingerprint": record["fingerprint"] for name, record in self._origin.items()},
            **asdict(self.settings),
            "features": self.spec.to_json(),
        }

    def optimizer(self) -> torch.optim.Optimizer:
        """Return an optimizer that updates only the rows of a batch."""
        groups = [{"params": [self.module.rows], LEARNING_RATE_FACTOR: 1}]
        return RowAdagrad(groups, lr=self.settings.learning_rate)

    def steps(self, done: int, _optimizer: torch.optim.Optimizer) -> Iterator[TrainingStep]:
        """Yield the remaining steps."""
        settings = self.settings
        for rows in self.names.batches(settings.batch_size or 0, settings.seed, done, self.total):
            yield TrainingStep(partial(self._step.backward, rows))

    def measure(self, _done: int) -> Mapping[str, float]:
        """Measure the retrieval of held-out synonyms."""
        return retrieval(self.pairs, self._split.held_out, TableEncoder(self.spec, self.module.rows))

    def finish(self) -> Mapping[str, float]:
        """Quantize the table and measure the result."""
        rows = self.module.rows.detach()
        piece = _BITS_PER_CODE // self.settings.bits
        self._codes = quantize_table(rows.cpu().numpy(), piece, seed=self.settings.seed)
        rows.copy_(torch.from_numpy(self._codes.decode(np.arange(len(rows)))))
        return {f"quantized_{name}": figure for name, figure in self.measure(self.total).items()}

    def state(self) -> dict[str, Any]:
        """Return nothing: the order of pairs depends only on the seed."""
        return {}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Do nothing."""

    def write(self, draft: Draft, metrics: Sequence[Mapping[str, Any]]) -> None:
        """Write the folder of the encoder."""
        if self._codes is None:
            raise RuntimeError("a table is quantized by `finish` before it is written")
        write_flash_encoder(draft.path, self.spec, self._codes)
        card = flash_card(pairs_data(self.pairs), {**self._origin, **asdict(self.settings)}, metrics)
        (draft.path / "README.md").write_text(card, encoding="utf-8")
        inputs = {self.pairs.path.name: {"fingerprint": self.pairs.manifest.fingerprint}}
        draft.seal(
            KIND,
            fingerprint=FlashEncoder.open(draft.path, verify=False).fingerprint,
            settings=self.described,
            inputs=inputs | self._origin,
            counts={"steps": self.total, "rows": self.spec.rows, "used rows": int(self._used.sum())},
        )


def _origin(base: str | None, start: Start, teacher: Teacher | None) -> dict[str, dict[str, str]]:
    """Return name and fingerprint of the base and of the teacher."""
    origin = {}
    if base is not None and start.fingerprint is not None:
        origin["base"] = {"name": base, "fingerprint": start.fingerprint}
    if teacher is not None:
        origin["teacher"] = {"name": teacher.name, "fingerprint": teacher.fingerprint}
    return origin


def _with_defaults(settings: FlashSettings, device: torch.device, pairs: int) -> FlashSettings:
    """Return the settings with the batch size and the number of steps for this device and these pairs."""
    size = batch_size(settings.batch_size, _BATCH_SIZE.get(device.type, _BATCH_SIZE["cpu"]), pairs)
    default = min(_STEPS.get(device.type, _STEPS["cpu"]), max(_MOST_EPOCHS * pairs // size, 1))
    return replace(settings, batch_size=size, steps=settings.steps or default)
