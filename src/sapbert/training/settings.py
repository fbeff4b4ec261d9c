"""Settings of training runs. Defaults follow the SapBERT and BioSyn papers where they give a value.

Each setting is defined once, here: `cli.options` makes a command-line option of its name, type, default and
docstring.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Literal

from sapbert.errors import ConfigError
from sapbert.settings_file import check_types
from sapbert.tokens.pooling import PoolingName

AdapterName = Literal["none", "pfeiffer", "lora"]
LossName = Literal["ms", "circle", "nca", "lifted", "infonce", "triplet", "cosine"]
Precision = Literal["fp32", "bf16", "fp16"]
Schedule = Literal["constant", "linear"]
Triplets = Literal["all", "hard", "semihard", "easy", "off"]
_MINIMUM = {
    "max_length": 1,
    "chunk": 1,
    "evaluate_every": 1,
    "checkpoint_every": 1,
    "keep": 1,
    "reduction": 1,
    "matryoshka_dim": 1,
    "rank": 1,
    "alpha": 1,
    "held_out": 0,
    "weight_decay": 0,
    "seed": 0,
    "candidates": 2,
    "sparse_weight": 0,
    "dimension": 1,
    "steps": 1,
}
_ABOVE_ZERO = ("epochs", "learning_rate", "clip", "scale", "temperature")
_FRACTIONS = ("dense_share", "last_dense_share")
_RENAMED = {"leading": "matryoshka_dim", "blend": "weight_interpolation"}
_RENAMED_VALUES = {"names": {"learn": "trained", "stay": "frozen"}}


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopSettings:
    """Settings of every training method."""

    learning_rate: float = 2e-5
    """Learning rate of the optimizer, after warm-up."""
    schedule: Schedule = "constant"
    """Learning rate after warm-up: constant, or falling linearly to 0 at the last step."""
    warmup: float = 0.0
    """Fraction of all steps over which the learning rate rises."""
    seed: int = 33
    """Seed of all random choices: the same settings and seed give the same model."""
    checkpoint_every: int = 1000
    """Steps between checkpoints."""
    keep: int = 2
    """Number of checkpoints kept."""

    @property
    def scales_loss(self) -> bool:
        """Whether the loss is scaled so that gradients do not vanish in fp16."""
        return False

    @property
    def max_gradient_norm(self) -> float | None:
        """Norm to which larger gradients are reduced; None for no clipping."""
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class TransformerSettings(LoopSettings):
    """Settings of every method that trains a transformer."""

    max_length: int = 25
    """Maximum number of tokens per name; longer names are truncated."""
    learning_rate: float = 2e-5
    """Learning rate of AdamW, after warm-up."""
    weight_decay: float = 0.01
    """Weight decay of AdamW."""
    clip: float | None = None
    """Maximum norm of the gradient; no clipping by default."""
    precision: Precision = "fp32"
    """bf16 and fp16 run the encoder in mixed precision."""

    @property
    def scales_loss(self) -> bool:
        """Whether the loss is scaled so that gradients do not vanish in fp16."""
        return self.precision == "fp16"

    @property
    def max_gradient_norm(self) -> float | None:
        """Norm to which larger gradients are reduced; None for no clipping."""
        return self.clip


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainSettings(TransformerSettings):
    """Every field is also an option of `sapbert train` and a key of a recipe."""

    renamed_settings: ClassVar[Mapping[str, str]] = _RENAMED

    pooling: PoolingName = "cls"
    """How token vectors are combined into the vector of a name."""
    loss: LossName = "ms"
    """Loss function."""
    loss_settings: Mapping[str, float] = field(default_factory=dict)
    """Parameters of the loss that differ from its defaults."""
    triplets: Triplets = "all"
    """Triplets whose pairs are trained on: all that violate the margin, or only hard, semihard or easy ones;
    off uses every pair of a batch."""
    margin: float = 0.2
    """Distance by which a negative must be farther than the positive for a triplet to satisfy the margin."""
    matryoshka_dim: int | None = None
    """Also train the first dimensions, this many, as vectors of their own, for truncated vectors. Shorter
    vectors of `sapbert index --dimensions` do not need it."""
    weight_interpolation: float = 1.0
    """Weight of the trained parameters in the final model, between the base (0) and the trained model (1)."""

    batch_size: int = 256
    """Pairs per step, over all processes."""
    chunk: int | None = None
    """Names encoded at a time, for batches larger than memory; by default all at once."""
    epochs: float = 1.0
    """Passes over all pairs; a fraction ends within an epoch."""

    held_out: int = 1000
    """Concepts held out of training for evaluation; 0 turns it off."""
    evaluate_every: int = 1000
    """Steps between evaluations."""

    adapter: AdapterName = "none"
    """Train only an adapter: Pfeiffer bottlenecks or LoRA updates. By default the whole encoder is
    trained."""
    reduction: int = 16
    """Hidden size divided by the size of a Pfeiffer bottleneck."""
    rank: int = 8
    """Rank of the LoRA updates."""
    alpha: int = 16
    """LoRA updates are scaled by alpha / rank."""

    def __post_init__(self) -> None:
        _check(self)
        if not 0 < self.weight_interpolation <= 1:
            raise ConfigError(
                f"weight_interpolation must be a fraction in (0, 1], got {self.weight_interpolation}"
            )
        if self.weight_interpolation < 1 and self.adapter != "none":
            raise ConfigError("weight_interpolation needs a fully trained encoder; remove it or the adapter")
        if self.batch_size < 2:
            raise ConfigError("a batch of one pair has no negatives; give a batch size of at least 2")


@dataclass(frozen=True, slots=True, kw_only=True)
class BiosynSettings(TransformerSettings):
    """Every field is also an option of `sapbert biosyn` and a key of a recipe."""

    renamed_values: ClassVar[Mapping[str, Mapping[str, str]]] = _RENAMED_VALUES

    pooling: PoolingName | None = None
    """How token vectors are combined into the vector of a name; by default as the base was trained, or
    cls."""
    candidates: int = 20
    """Candidate names per mention."""
    dense_share: float = 0.5
    """Fraction of the candidates found by dense vectors in the first epoch; the rest are found by n-grams."""
    last_dense_share: float = 0.5
    """The same fraction in the last epoch; it changes linearly in between."""
    sparse_weight: float | None = None
    """Initial weight of the n-gram score relative to the dense score; by default that of the base, or 0."""
    scale: float = 20.0
    """Factor of the scores before the softmax: cosines alone would make it almost uniform."""
    names: Literal["trained", "frozen"] = "trained"
    """Vectors of names: trained along with those of mentions, or frozen at those of the base. Frozen names
    are encoded only once, which makes the candidate search almost free."""

    batch_size: int = 16
    """Mentions per step."""
    epochs: int = 10
    """Passes over all mentions; before each, names are encoded (unless frozen) and candidates are
    searched."""
    learning_rate: float = 1e-5
    """Learning rate of AdamW for the encoder, after warm-up."""

    def __post_init__(self) -> None:
        _check(self)
        for name in _FRACTIONS:
            if not 0 <= getattr(self, name) <= 1:
                raise ConfigError(
                    f"{name} must be a fraction in [0, 1], got {getattr(self, name)}; 0.5 means half"
                )
        _check_batch(self.batch_size)


@dataclass(frozen=True, slots=True, kw_only=True)
class RerankerSettings(TransformerSettings):
    """Every field is also an option of `sapbert reranker` and a key of a recipe."""

    pooling: PoolingName | None = None
    """How token vectors are combined into one vector; by default as the base was trained, or cls."""
    candidates: int = 20
    """Candidate concepts per mention, each represented by its best name."""

    batch_size: int = 16
    """Mentions per step."""
    epochs: int = 3
    """Passes over all mentions."""
    max_length: int = 96
    """Maximum number of tokens of a name and its mention in context; longer texts are truncated."""

    held_out: int = 200
    """Mentions held out of training for evaluation, at most a fifth; 0 turns it off."""

    def __post_init__(self) -> None:
        _check(self)
        _check_batch(self.batch_size)


@dataclass(frozen=True, slots=True, kw_only=True)
class FlashSettings(LoopSettings):
    """Every field is also an option of `sapbert flash` and a key of a recipe."""

    dimension: int | None = None
    """Length of a vector; by default that of the base, or 256."""
    features: Mapping[str, float] = field(default_factory=dict)
    """A table of features and its size as a power of 2: word, pair (two neighbouring words), characters-N
    (n-grams of a word), sounds or sounds-N (as the word sounds). By default the tables of the base, or word,
    pair and characters-4, each of about the number of names, at most 2^17."""
    bits: int = 2
    """Bits per dimension of the quantized table: 8, 4 or 2."""

    temperature: float = 0.07
    """Divides the similarities before the softmax."""
    misspelt: float = 0.3
    """Fraction of the pairs that are a name and a copy of it with one spelling error."""
    teacher_weight: float = 0.7
    """Weight of the teacher relative to the contrastive loss, if there is a teacher."""

    batch_size: int | None = None
    """Pairs per step; by default 4,096 on a GPU and 1,024 on a CPU, fewer for few pairs."""
    steps: int | None = None
    """Number of steps; by default 1,500 on a GPU and 2,000 on a CPU, at most 30 passes over the pairs."""
    learning_rate: float = 0.2
    """Learning rate of row-wise Adagrad, after warm-up."""
    schedule: Schedule = "linear"
    """Learning rate after warm-up: constant, or falling linearly to 0 at the last step."""
    warmup: float = 0.06
    """Fraction of all steps over which the learning rate rises."""

    held_out: int = 1000
    """Concepts held out of training for evaluation; 0 turns it off."""
    evaluate_every: int = 500
    """Steps between evaluations."""

    def __post_init__(self) -> None:
        _check(self)
        for name, most in (("misspelt", 0.9), ("teacher_weight", 1.0)):
            if not 0 <= getattr(self, name) <= most:
                raise ConfigError(f"{name} must be a fraction in [0, {most}], got {getattr(self, name)}")
        if self.bits not in (8, 4, 2):
            raise ConfigError(f"bits must be 8, 4 or 2, got {self.bits}")
        if self.batch_size is not None and self.batch_size < 2:
            raise ConfigError("a batch of one pair has no negatives; give a batch size of at least 2")


def with_current_names(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return stored settings of an earlier version under the current names, for comparison with new ones."""
    return {
        _RENAMED.get(name, name): _RENAMED_VALUES[name].get(value, value)
        if name in _RENAMED_VALUES
        else value
        for name, value in settings.items()
    }


def _check_batch(batch_size: int) -> None:
    if batch_size < 1:
        raise ConfigError(f"batch_size must be at least 1, got {batch_size}")


def _check(settings: LoopSettings) -> None:
    """Refuse values that are wrong for a field of any settings class."""
    check_types(settings)
    values = {field.name: getattr(settings, field.name) for field in fields(settings)}
    for name, minimum in _MINIMUM.items():
        value = values.get(name)
        if value is not None and value < minimum:
            raise ConfigError(f"{name} must be at least {minimum}, got {value}")
    for name in _ABOVE_ZERO:
        value = values.get(name)
        if value is not None and value <= 0:
            raise ConfigError(f"{name} must be above 0, got {value}")
    if not 0 <= settings.warmup < 1:
        raise ConfigError(f"warmup must be a fraction in [0, 1), got {settings.warmup}; 0.1 means 10%")
