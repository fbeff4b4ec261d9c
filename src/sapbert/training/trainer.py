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
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import PreTrainedModel

from sapbert.artifacts import create
from sapbert.encoder.adapters import trainable_parameters
from sapbert.encoder.folder import ADAPTER_FOLDER, save_model
from sapbert.encoder.pooling import Pooling
from sapbert.encoder.transformer import TransformerEncoder, load_encoder
from sapbert.errors import ArtifactError, ConfigError
from sapbert.pairs.artifact import Pairs
from sapbert.protocols import Encoder
from sapbert.training.adapt import adapt
from sapbert.training.batches import Batch, Batches, split_pairs
from sapbert.training.card import model_card
from sapbert.training.checkpoints import Checkpoints
from sapbert.training.gather import any_process, joined, sum_gradients, wait_for_all, world
from sapbert.training.lora import merge_lora, save_lora
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
Evaluate = Callable[[Encoder], Mapping[str, float]]
"""Measures the encoder as it is now; returns figures by name. Every process calls it."""

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
    evaluate: Evaluate | None = None,
    on_step: OnStep = _silent,
) -> None:
    """Train the encoder `base` on `pairs` and write the model folder to `target`.

    With `resume`, go on from the newest whole checkpoint of the run that was to write `target`. What
    `evaluate` measures every so many steps goes to the metrics and the model card; without it that is
    `retrieval`, the share of held-out synonyms found.
    """
    folder = target.with_name(f"{target.name}.run")
    with joined(device), _Interruption() as interruption:
        first = world()[0] == 0
        if first:
            _refuse_occupied(target, folder, resume=resume, overwrite=overwrite)
        run = _Run.start(pairs, base, settings, device, evaluate)
        if first and folder.exists() and not resume:
            # Not before all that the new run needs has been found in order.
            shutil.rmtree(folder)
        wait_for_all()
        checkpoints = Checkpoints(folder, keep=settings.keep)
        described = {"pairs": pairs.manifest.fingerprint, **run.origin, **asdict(settings)}
        done = run.restore(checkpoints.newest(described))
        with Metrics(folder / METRICS, after=done) if first else nullcontext() as metrics:
            run.loop(done, checkpoints, described, metrics, interruption, on_step)
            if settings.blend < 1:
                run.blend(metrics)
        if first:
            _write_model(run, target, described, read_metrics(folder / METRICS), overwrite=overwrite)
            shutil.rmtree(folder)
        wait_for_all()


@dataclass(frozen=True, slots=True)
class _Run:
    """The moving parts of a run."""

    pairs: Pairs
    batches: Batches
    encoder: TransformerEncoder
    model: PreTrainedModel
    optimizer: torch.optim.Optimizer
    scaler: torch.amp.GradScaler
    step: Step
    settings: TrainSettings
    evaluate: Evaluate
    origin: Mapping[str, str]
    """Name and fingerprint of the base."""
    total: int
    """Steps of the whole run."""

    @classmethod
    def start(
        cls,
        pairs: Pairs,
        base: str,
        settings: TrainSettings,
        device: torch.device,
        evaluate: Evaluate | None,
    ) -> Self:
        """Load the base encoder and set everything up for the first step."""
        rank, processes = world()
        loss = make_loss(settings.loss, settings.loss_settings)
        mining = MiningSettings(margin=settings.margin, triplets=settings.triplets)
        encoder, origin = _load(base, settings, device)
        if settings.leading is not None and settings.leading >= encoder.dimension:
            raise ConfigError(f"leading is less than the {encoder.dimension} dimensions that {base} has")
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
        return cls(
            pairs,
            batches,
            encoder,
            encoder.model,
            _optimizer(encoder.model, settings, device),
            torch.amp.GradScaler(device.type, enabled=settings.precision == "fp16"),
            Step(_encode(encoder, settings), loss, mining, device, settings.chunk, settings.leading),
            settings,
            evaluate or partial(_retrieval, pairs, split.held_out),
            origin,
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
            tell([(0, self.evaluate(self.encoder))])
        unread = Unread(self.step.device, 2 * self.settings.batch_size)
        for batch in self.batches.after(done, self.total):
            unread.add(done + 1, self._learning_rate(done), self._train_on(batch, done))
            done += 1
            last = done == self.total
            measure = last or done % self.settings.evaluate_every == 0
            save = last or done % self.settings.checkpoint_every == 0
            rows = unread.read(to_the_last=measure or save)
            if measure:
                rows[-1][1].update(self.evaluate(self.encoder))
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

    def blend(self, metrics: Metrics | None) -> None:
        """Move all weights back towards the base's, and measure what that gives."""
        before, _ = load_encoder(self.origin["base"])
        untrained = before.state_dict()
        with torch.no_grad():
            for name, value in self.model.named_parameters():
                value.lerp_(untrained[name].to(value), 1 - self.settings.blend)
        figures = self.evaluate(self.encoder)
        if metrics is not None:
            metrics.add(self.total, {f"blended_{name}": figure for name, figure in figures.items()})

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

    def state(self) -> dict[str, Any]:
        """All that the next step depends on and the base does not have."""
        frozen = {name for name, value in self.model.named_parameters() if not value.requires_grad}
        weights = self.model.state_dict()
        return {
            "model": {name: value for name, value in weights.items() if name not in frozen},
            "optimizer": self.optimizer.state_dict(),
            "scaler": self.scaler.state_dict(),
        }

    def restore(self, checkpoint: tuple[int, dict[str, Any]] | None) -> int:
        """Take up the state of a checkpoint; returns the steps done."""
        if checkpoint is None:
            return 0
        done, state = checkpoint
        self.model.load_state_dict({**self.model.state_dict(), **state["model"]})
        self.optimizer.load_state_dict(state["optimizer"])
        self.scaler.load_state_dict(state["scaler"])
        return done


def _load(
    base: str, settings: TrainSettings, device: torch.device
) -> tuple[TransformerEncoder, dict[str, str]]:
    """Load the base and put into it what is to be trained; returns also the base's name and fingerprint."""
    model, tokenizer = load_encoder(base)
    pooling = Pooling(settings.pooling)
    encoder = TransformerEncoder(model, tokenizer, pooling=pooling, max_length=settings.max_length)
    # A checkpoint leaves out what is frozen, so a run can only be resumed on the very same base.
    origin = {"base": base, "base_fingerprint": encoder.fingerprint}
    adapt(model, settings)
    model.to(device)  # type: ignore[arg-type]  # the stub knows only strings
    return encoder, origin


def _encode(encoder: TransformerEncoder, settings: TrainSettings) -> Encode:
    return Encode(
        encoder.model,
        pad_id=encoder.tokenizer.pad_token_id,
        pooling=encoder.pooling,
        max_length=settings.max_length,
        dtype=_DTYPES[settings.precision],
    )


def _retrieval(pairs: Pairs, held_out: NDArray[np.int64], encoder: Encoder) -> dict[str, float]:
    return {"retrieval": retrieval_accuracy(pairs, held_out, encoder)} if len(held_out) else {}


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
        trainable_parameters(model),
        lr=settings.learning_rate,
        weight_decay=settings.weight_decay,
        fused=device.type in ("cuda", "cpu"),
    )


def _refuse_occupied(target: Path, folder: Path, *, resume: bool, overwrite: bool) -> None:
    if target.exists() and not overwrite:
        raise ArtifactError(f"{target} exists; choose another name or give --overwrite")
    if folder.exists() and not (resume or overwrite):
        raise ArtifactError(f"{folder} holds an unfinished run; give --resume to go on or --overwrite")


def _write_model(
    run: _Run,
    target: Path,
    described: Mapping[str, Any],
    metrics: list[dict[str, Any]],
    *,
    overwrite: bool,
) -> None:
    settings, base = run.settings, run.origin["base"]
    with create(target, overwrite=overwrite) as draft:
        if settings.adapter == "lora":
            save_lora(run.model, draft.path / ADAPTER_FOLDER)
            merge_lora(run.model)
        save_model(
            draft.path,
            run.model,
            run.encoder.tokenizer,
            pooling=run.encoder.pooling,
            max_length=settings.max_length,
            card=model_card(base, run.pairs, asdict(settings), metrics),
        )
        write_metrics(draft.path / METRICS, metrics)
        draft.seal(
            KIND,
            fingerprint=run.encoder.fingerprint,
            settings=described,
            inputs={
                run.pairs.path.name: {"fingerprint": run.pairs.manifest.fingerprint},
                "base": {"name": base, "fingerprint": run.origin["base_fingerprint"]},
            },
            counts={"steps": run.total},
        )
