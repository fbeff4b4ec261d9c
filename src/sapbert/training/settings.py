"""What one training run does; defaults follow the paper's pretraining."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal, get_args, get_type_hints

from sapbert.errors import ConfigError, FormatError

LossName = Literal["ms", "circle", "nca", "lifted", "infonce", "triplet", "cosine"]
PoolingName = Literal["cls", "mean", "mean-all-tokens", "first-token", "no-special"]
Precision = Literal["fp32", "bf16", "fp16"]
Schedule = Literal["constant", "linear"]
Triplets = Literal["all", "hard", "semihard", "easy", "off"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainSettings:
    """Every field is also an option of `sapbert train` and a key of a recipe."""

    pooling: PoolingName = "cls"
    """Which vector stands for a name: cls, mean, mean-all-tokens, first-token or no-special."""
    max_length: int = 25
    """Tokens of a name; longer ones are cut."""
    batch_size: int = 256
    """Pairs a step, over all processes."""
    chunk: int | None = None
    """Names encoded at a time, for batches larger than memory; none encodes them in one pass."""
    epochs: float = 1.0
    """Times through all pairs; a fraction ends within an epoch."""
    learning_rate: float = 2e-5
    weight_decay: float = 0.01
    schedule: Schedule = "constant"
    """After warm-up, keep the learning rate or let it fall to nothing at the last step."""
    warmup: float = 0.0
    """Fraction of all steps over which the learning rate rises."""
    clip: float | None = None
    """Largest norm of the gradient; none does not clip."""
    precision: Precision = "fp32"
    """bf16 or fp16 run the encoder in mixed precision."""
    loss: LossName = "ms"
    """ms, circle, nca, lifted, infonce, triplet or cosine."""
    triplets: Triplets = "all"
    """Which triplets give the pairs to train on: all that are not learned yet, hard, semihard or easy ones;
    off trains on every pair of a batch."""
    margin: float = 0.2
    """How much farther than the positive a negative must be for a triplet to count as learned."""
    held_out: int = 1000
    """Concepts kept from training to measure with; 0 measures nothing."""
    evaluate_every: int = 1000
    """Steps between measurements."""
    checkpoint_every: int = 1000
    """Steps between checkpoints."""
    keep: int = 2
    """Checkpoints kept."""
    seed: int = 33
    """Same settings and seed, same model."""

    def __post_init__(self) -> None:
        for name, hint in get_type_hints(type(self)).items():
            choices = get_args(hint)
            if choices and isinstance(choices[0], str) and getattr(self, name) not in choices:
                raise ConfigError(f"{name} is one of {', '.join(choices)}; got {getattr(self, name)!r}")
        for name in ("max_length", "batch_size", "evaluate_every", "checkpoint_every", "keep"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} is at least 1, got {getattr(self, name)}")
        for name in ("epochs", "learning_rate"):
            if not getattr(self, name) > 0:
                raise ConfigError(f"{name} is above 0, got {getattr(self, name)}")
        if not 0 <= self.warmup < 1:
            raise ConfigError(f"warmup is a fraction in [0, 1), got {self.warmup}; 0.1 means 10%")
        if self.batch_size < 2:
            raise ConfigError("a batch of one pair has no negatives; give at least 2")


def read_recipe(path: Path) -> dict[str, Any]:
    """Read settings from a TOML file; an unknown key is refused, with the nearest one that exists."""
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise FormatError(path, None, f"no TOML: {error}") from error
    except OSError as error:
        raise FormatError(path, None, f"cannot be read: {error.strerror}") from error
    for key in content:
        _refuse_unknown(path, key)
    return content


def settings_from(recipe: Mapping[str, Any], options: Mapping[str, Any]) -> TrainSettings:
    """Make settings of a recipe and of options, which count more; an option that is None was not given."""
    given = {name: value for name, value in options.items() if value is not None}
    try:
        return TrainSettings(**{**recipe, **given})
    except TypeError as error:
        raise ConfigError(f"a setting has a value of the wrong type: {error}") from error


def _refuse_unknown(path: Path, key: str) -> None:
    known = [field.name for field in fields(TrainSettings)]
    if key not in known:
        near = get_close_matches(key, known, n=1, cutoff=0.0)
        raise ConfigError(f"{path}: there is no setting {key!r}; the nearest is {near[0]!r}")
