"""What one training run does; defaults follow the papers, where there is one: SapBERT's, and BioSyn's.

A setting is said once, here: `cli.options` makes an option of its name, type, default and docstring.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Literal

from sapbert.errors import ConfigError
from sapbert.settings_file import check_types

AdapterName = Literal["none", "pfeiffer", "lora"]
LossName = Literal["ms", "circle", "nca", "lifted", "infonce", "triplet", "cosine"]
PoolingName = Literal["cls", "mean", "mean-all-tokens", "first-token", "no-special"]
Precision = Literal["fp32", "bf16", "fp16"]
Schedule = Literal["constant", "linear"]
Triplets = Literal["all", "hard", "semihard", "easy", "off"]
_LEAST = {
    "max_length": 1,
    "chunk": 1,
    "evaluate_every": 1,
    "checkpoint_every": 1,
    "keep": 1,
    "reduction": 1,
    "leading": 1,
    "rank": 1,
    "alpha": 1,
    "held_out": 0,
    "weight_decay": 0,
    "seed": 0,
    "candidates": 2,
    "sparse_weight": 0,
}
_ABOVE_ZERO = ("epochs", "learning_rate", "clip", "scale")
_SHARES = ("dense_share", "last_dense_share")


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopSettings:
    """What every kind of training is told."""

    max_length: int = 25
    """Tokens of a name; longer ones are cut."""
    learning_rate: float = 2e-5
    """Step size of AdamW, after warm-up."""
    weight_decay: float = 0.01
    """How strongly AdamW pulls weights to zero."""
    schedule: Schedule = "constant"
    """After warm-up, keep the learning rate or let it fall to nothing at the last step."""
    warmup: float = 0.0
    """Fraction of all steps over which the learning rate rises."""
    clip: float | None = None
    """Largest norm of the gradient; without it nothing is clipped."""
    precision: Precision = "fp32"
    """bf16 and fp16 run the encoder in mixed precision."""
    seed: int = 33
    """Same settings and seed, same model."""
    checkpoint_every: int = 1000
    """Steps between checkpoints."""
    keep: int = 2
    """Checkpoints kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainSettings(LoopSettings):
    """Every field is also an option of `sapbert train` and a key of a recipe."""

    pooling: PoolingName = "cls"
    """Which vector stands for a name."""
    loss: LossName = "ms"
    """What a step minimises."""
    loss_settings: Mapping[str, float] = field(default_factory=dict)
    """Parameters of the loss, where they are not to be its defaults."""
    triplets: Triplets = "all"
    """Whose pairs are trained on: of all triplets not learned yet, or of the hard, semihard or easy ones; off
    takes every pair of a batch."""
    margin: float = 0.2
    """How much farther than the positive a negative must be for a triplet to count as learned."""
    leading: int | None = None
    """Train so many leading dimensions to work alone as well, for those who cut vectors short; `sapbert
    index` finds fewer dimensions of any encoder by itself."""
    blend: float = 1.0
    """Share of the trained weights in the model that is written; the rest is the base's."""

    batch_size: int = 256
    """Pairs a step, over all processes."""
    chunk: int | None = None
    """Names encoded at a time, for batches larger than memory; without it all are, in one pass."""
    epochs: float = 1.0
    """Times through all pairs; a fraction ends within an epoch."""

    held_out: int = 1000
    """Concepts kept from training to measure with; 0 measures nothing."""
    evaluate_every: int = 1000
    """Steps between measurements."""

    adapter: AdapterName = "none"
    """Train these few parameters instead of the base: Pfeiffer's bottlenecks, or LoRA's low-rank updates."""
    reduction: int = 16
    """Width of the encoder over width of a bottleneck."""
    rank: int = 8
    """Rank of the LoRA update of each linear map."""
    alpha: int = 16
    """A LoRA update is scaled by alpha / rank."""

    def __post_init__(self) -> None:
        _check(self)
        if not 0 < self.blend <= 1:
            raise ConfigError(f"blend is a fraction in (0, 1], got {self.blend}")
        if self.blend < 1 and self.adapter != "none":
            raise ConfigError("blend mixes whole models; with an adapter the base is there already")
        if self.batch_size < 2:
            raise ConfigError("a batch of one pair has no negatives; give at least 2")


@dataclass(frozen=True, slots=True, kw_only=True)
class BiosynSettings(LoopSettings):
    """Every field is also an option of `sapbert biosyn` and a key of a recipe."""

    pooling: PoolingName | None = None
    """Which vector stands for a name; by default as the base was trained, or cls."""
    candidates: int = 20
    """Names that a mention learns to tell apart."""
    dense_share: float = 0.5
    """Share of them found by vectors in the first epoch; spelling finds the others."""
    last_dense_share: float = 0.5
    """The same in the last epoch; between them it changes evenly."""
    sparse_weight: float | None = None
    """What spelling counts beside vectors at the start; by default what the base has learned, or nothing."""
    scale: float = 20.0
    """What scores are multiplied with before the softmax: cosines alone would leave it almost flat."""
    names: Literal["learn", "stay"] = "learn"
    """Whether names learn too, or stay where the base puts them and mentions come to them. Then all names are
    encoded but once, and candidates cost next to nothing."""

    batch_size: int = 16
    """Mentions a step."""
    epochs: int = 10
    """Times through all mentions; before each, names that learn are encoded and candidates sought anew."""
    learning_rate: float = 1e-5
    """Step size of AdamW for the encoder, after warm-up."""

    def __post_init__(self) -> None:
        _check(self)
        for name in _SHARES:
            if not 0 <= getattr(self, name) <= 1:
                raise ConfigError(f"{name} is a share in [0, 1], got {getattr(self, name)}; 0.5 means half")
        _check_batch(self.batch_size)


@dataclass(frozen=True, slots=True, kw_only=True)
class RerankerSettings(LoopSettings):
    """Every field is also an option of `sapbert reranker` and a key of a recipe."""

    pooling: PoolingName | None = None
    """Which vector stands for a name and its mention; by default as the base was trained, or cls."""
    candidates: int = 20
    """Concepts that a mention learns to tell apart, each by its best name."""

    batch_size: int = 16
    """Mentions a step."""
    epochs: int = 3
    """Times through all mentions."""
    max_length: int = 96
    """Tokens of a name and its mention in context; what is longer is cut."""

    held_out: int = 200
    """Mentions kept from training to measure with, at most a fifth; 0 measures nothing."""

    def __post_init__(self) -> None:
        _check(self)
        _check_batch(self.batch_size)


def _check_batch(batch_size: int) -> None:
    if batch_size < 1:
        raise ConfigError(f"a batch has at least one mention, got {batch_size}")


def _check(settings: LoopSettings) -> None:
    """Refuse values that no field of any kind takes."""
    check_types(settings)
    values = {field.name: getattr(settings, field.name) for field in fields(settings)}
    for name, least in _LEAST.items():
        value = values.get(name)
        if value is not None and value < least:
            raise ConfigError(f"{name} is at least {least}, got {value}")
    for name in _ABOVE_ZERO:
        value = values.get(name)
        if value is not None and value <= 0:
            raise ConfigError(f"{name} is above 0, got {value}")
    if not 0 <= settings.warmup < 1:
        raise ConfigError(f"warmup is a fraction in [0, 1), got {settings.warmup}; 0.1 means 10%")
