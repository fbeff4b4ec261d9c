"""Self-alignment training: one plain loop that a newcomer reads in one sitting.

What a step computes is in `step`, the order of pairs in `batches`, what survives a crash in `checkpoints`.
While a run lasts, its checkpoints and `metrics.jsonl` lie in `MODEL.run`; when it ends, the model folder
appears whole at MODEL, with the metrics inside, and the run's folder is removed.
"""

from __future__ import annotations

import shutil
import signal
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType
from typing import Any, Self

import numpy as np
import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from sapbert.artifacts import create
from sapbert.encoder.folder import save_model
from sapbert.encoder.pooling import Pooling
from sapbert.encoder.transformer import TransformerEncoder, load_encoder
from sapbert.errors import ArtifactError
from sapbert.pairs.artifact import Pairs
from sapbert.training.batches import Batch, Batches, Split, split_pairs
from sapbert.training.card import model_card
from sapbert.training.checkpoints import Checkpoints
from sapbert.training.gather import any_process, joined, sum_gradients, wait_for_all, world
from sapbert.training.losses import make_loss
from sapbert.training.metrics import Metrics, read_metrics, write_metrics
from sapbert.training.mining import MiningSettings
from sapbert.training.retrieval import retrieval_accuracy
from sapbert.training.settings import TrainSettings
from sapbert.training.step import Encode, Step, StepReport
from sapbert.training.unread import Unread

KIND = "model"
METRICS = "metrics.jsonl"
_DTYPES = {"fp32": None, "bf16": torch.bfloat16, "fp16": torch.float16}
OnStep = Callable[[int, int, Mapping[str, float]], None]
"""Told the steps done, all steps, and what was measured after the last."""

_Row = tuple[int, Mapping[str, float]]


def _silent(_done: int, _total: int, _figures: Mapping[str, float]) -> None:
    """Show nothing."""


def train(
    pairs: Pairs,
    base: str,
    target: Path,
    settings: TrainSettings,
    *,
    device: torch.device,
    resume: bool = False,
    overwrite: bool = False,
    on_step: OnStep = _silent,
) -> None:
    """Train the encoder `base` on `pairs` and write the model folder to `target`.

    With `resume`, go on from the newest whole checkpoint of the run that was to write `target`.
    """
    folder = target.with_name(f"{target.name}.run")
    with joined(device), _Interruption() as interruption:
        first = world()[0] == 0
        if first:
            _make_room(target, folder, resume=resume, overwrite=overwrite)
        wait_for_all()
        run = _Run.start(pairs, base, settings, device)
        checkpoints = Checkpoints(folder, keep=settings.keep)
        described = {"base": base, "pairs": pairs.manifest.fingerprint, **asdict(settings)}
        done = run.restore(checkpoints.newest(described))
        with Metrics(folder / METRICS, after=done) if first else nullcontext() as metrics:
            run.loop(done, checkpoints, described, metrics, interruption, on_step)
        if first:
            _write_model(run, base, target, described, read_metrics(folder / METRICS), overwrite=overwrite)
            shutil.rmtree(folder)
        wait_for_all()


@dataclass(frozen=True, slots=True)
class _Run:
    """The moving parts of a run."""

    pairs: Pairs
    split: Split
    batches: Batches
    encoder: TransformerEncoder
    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    optimizer: torch.optim.Optimizer
    scaler: torch.amp.GradScaler
    step: Step
    settings: TrainSettings
    total: int
    """Steps of the whole run."""

    @classmethod
    def start(cls, pairs: Pairs, base: str, settings: TrainSettings, device: torch.device) -> Self:
        """Load the base encoder and set everything up for the first step."""
        rank, processes = world()
        model, tokenizer = load_encoder(base)
        model.to(device)  # type: ignore[arg-type]  # the stub knows only strings
        split = split_pairs(pairs, held_out_concepts=settings.held_out, seed=settings.seed)
        batches = Batches(
            pairs,
            split.train,
            tokenizer,
            batch_size=settings.batch_size,
            max_length=settings.max_length,
            seed=settings.seed,
            rank=rank,
            world=processes,
        )
        dtype, pooling = _DTYPES[settings.precision], Pooling(settings.pooling)
        return cls(
            pairs,
            split,
            batches,
            TransformerEncoder(model, tokenizer, pooling=pooling, max_length=settings.max_length),
            model,
            tokenizer,
            _optimizer(model, settings, device),
            torch.amp.GradScaler(device.type, enabled=settings.precision == "fp16"),
            Step(
                Encode(
                    model,
                    pad_id=tokenizer.pad_token_id,
                    pooling=pooling,
                    max_length=settings.max_length,
                    dtype=dtype,
                ),
                make_loss(settings.loss),
                MiningSettings(margin=settings.margin, triplets=settings.triplets),
                device,
                settings.chunk,
            ),
            settings,
            max(round(settings.epochs * batches.steps_an_epoch), 1),
        )

    def loop(
        self,
        done: int,
        checkpoints: Checkpoints,
        described: Mapping[str, Any],
        metrics: Metrics | None,
        interruption: _Interruption,
        on_step: OnStep,
    ) -> None:
        """Train from step `done` to the last; only the first process has metrics, and tells and saves."""
        tell = _teller(metrics, on_step, self.total)
        if done == 0:
            tell([(0, self._measure())])
        unread = Unread(self.step.device, 2 * self.settings.batch_size)
        for batch in self.batches.after(done, self.total):
            unread.add(done + 1, self._learning_rate(done), self._train_on(batch, done))
            done += 1
            last = done == self.total
            measure = last or done % self.settings.evaluate_every == 0
            save = last or done % self.settings.checkpoint_every == 0
            rows = unread.read(to_the_last=measure or save)
            if measure:
                rows[-1][1].update(self._measure())
            tell(rows)
            stop = any_process(interruption.asked)
            if save or stop:
                tell(unread.read(to_the_last=True))
                if metrics is not None:
                    checkpoints.save(done, self.state(), described)
            if stop and not last:
                raise KeyboardInterrupt
            if measure or save:
                unread.restart_clock()

    def _train_on(self, batch: Batch, done: int) -> StepReport:
        """Take one step; returns what it found."""
        # Dropout depends on the step and the process alone, so a resumed run needs no random state.
        rank, _ = world()
        torch.manual_seed(int(np.random.SeedSequence([self.settings.seed, done, rank]).generate_state(1)[0]))
        for group in self.optimizer.param_groups:
            group["lr"] = self._learning_rate(done)
        self.model.train()
        self.optimizer.zero_grad(set_to_none=True)
        report = self.step(batch, self.scaler.scale)
        sum_gradients(self.model.parameters())
        if self.settings.clip is not None:
            self.scaler.unscale_(self.optimizer)
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.settings.clip)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        return report

    def _learning_rate(self, done: int) -> float:
        """Rise over the warm-up, then stay or fall to nothing."""
        rising = self.settings.warmup * self.total
        if done < rising:
            return self.settings.learning_rate * (done + 1) / rising
        if self.settings.schedule == "constant":
            return self.settings.learning_rate
        return self.settings.learning_rate * (self.total - done) / (self.total - rising)

    def _measure(self) -> dict[str, float]:
        if not len(self.split.held_out):
            return {}
        return {"retrieval": retrieval_accuracy(self.pairs, self.split.held_out, self.encoder)}

    def state(self) -> dict[str, Any]:
        """All that the next step depends on."""
        return {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "scaler": self.scaler.state_dict(),
        }

    def restore(self, checkpoint: tuple[int, dict[str, Any]] | None) -> int:
        """Take up the state of a checkpoint; returns the steps done."""
        if checkpoint is None:
            return 0
        done, state = checkpoint
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.scaler.load_state_dict(state["scaler"])
        return done


class _Interruption:
    """Turns Ctrl-C into a request to stop after this step; a second one stops at once."""

    def __init__(self) -> None:
        self.asked = False

    def __enter__(self) -> Self:
        self._before = signal.signal(signal.SIGINT, self._ask)
        return self

    def __exit__(self, *error: object) -> None:
        signal.signal(signal.SIGINT, self._before)

    def _ask(self, _number: int, _frame: FrameType | None) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True


def _teller(metrics: Metrics | None, on_step: OnStep, total: int) -> Callable[[Sequence[_Row]], None]:
    """Make what writes and tells the figures of steps; nothing where there are no metrics."""

    def tell(rows: Sequence[_Row]) -> None:
        if metrics is not None:
            for step, figures in rows:
                metrics.add(step, figures)
                on_step(step, total, figures)

    return tell


def _optimizer(
    model: PreTrainedModel, settings: TrainSettings, device: torch.device
) -> torch.optim.Optimizer:
    return torch.optim.AdamW(
        [parameter for parameter in model.parameters() if parameter.requires_grad],
        lr=settings.learning_rate,
        weight_decay=settings.weight_decay,
        fused=device.type in ("cuda", "cpu"),
    )


def _make_room(target: Path, folder: Path, *, resume: bool, overwrite: bool) -> None:
    if target.exists() and not overwrite:
        raise ArtifactError(f"{target} exists; choose another name or give --overwrite")
    if folder.exists() and not resume:
        if not overwrite:
            raise ArtifactError(f"{folder} holds an unfinished run; give --resume to go on or --overwrite")
        shutil.rmtree(folder)


def _write_model(
    run: _Run,
    base: str,
    target: Path,
    described: Mapping[str, Any],
    metrics: list[dict[str, Any]],
    *,
    overwrite: bool,
) -> None:
    settings = run.settings
    with create(target, overwrite=overwrite) as draft:
        card = model_card(base, run.pairs, asdict(settings), metrics)
        save_model(
            draft.path,
            run.model,
            run.tokenizer,
            pooling=run.encoder.pooling,
            max_length=settings.max_length,
            card=card,
        )
        write_metrics(draft.path / METRICS, metrics)
        inputs = {
            run.pairs.path.name: {"fingerprint": run.pairs.manifest.fingerprint},
            "base": {"name": base},
        }
        fingerprint = run.encoder.fingerprint
        draft.seal(
            KIND, fingerprint=fingerprint, settings=described, inputs=inputs, counts={"steps": run.total}
        )
