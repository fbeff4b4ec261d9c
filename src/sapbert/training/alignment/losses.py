"""The losses of the paper's Table 6, with the settings that its Table 9 marks as used.

A loss takes unit vectors in float32 and masks of the mined pairs. Pairs in neither mask are ignored, so names
that share a concept only through an ambiguous text are never pushed apart. A batch without pairs has loss
zero and gradient zero.

Two losses come from pytorch-metric-learning. Multi-similarity, lifted structure and InfoNCE are implemented
here, in one pass over the similarities of the batch: for the last two the library compares each positive with
a list of all negatives, half a gigabyte at 512 names. NCA and cosine are implemented here because the
library's `NCALoss` ignores mining and it has no cosine loss. The losses implemented here never wait for the
device.

Each loss is a mean, but over different things: anchors, pairs, or triplets with a nonzero loss. Only
multi-similarity could be split by anchors over processes, as each anchor counts once with or without pairs;
every other loss must be computed over all gathered names.
"""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, fields
from math import inf
from typing import Any, Protocol, Self, get_args

import torch
from torch import Tensor
from torch.nn import functional

from sapbert.errors import ConfigError, MissingExtraError, suggestion
from sapbert.training.alignment.mining import HardPairs
from sapbert.training.settings import LossName


class Loss(Protocol):
    """A loss function."""

    def __call__(self, anchors: Tensor, references: Tensor, pairs: HardPairs) -> Tensor:
        """Return the loss of anchors (n, d) and references (m, d); the pairs are (n, m) masks.  # ()"""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class MultiSimilarity:
    """Wang et al. 2019: a soft weighting by which the worst pairs of an anchor count most.

    Mean over all anchors, those without pairs counting as 0, of
    log(1 + sum over positives of exp(-positive_scale (s - offset))) / positive_scale, plus
    log(1 + sum over negatives of exp(negative_scale (s - offset))) / negative_scale.

    The defaults are those of the released code, and the value equals that of pytorch-metric-learning's
    `MultiSimilarityLoss(alpha=1, beta=60, base=0.5)`, except that the library treats a batch with a single
    triplet as empty.
    """

    positive_scale: float = 1.0
    """`alpha` in Wang et al. and in the library."""
    negative_scale: float = 60.0
    """`beta` in Wang et al. and in the library."""
    offset: float = 0.5
    """The cosine around which pairs start to count; epsilon in the paper."""

    def __post_init__(self) -> None:
        _require_above_zero(positive_scale=self.positive_scale, negative_scale=self.negative_scale)
        _require_cosine(offset=self.offset)

    @classmethod
    def of_table_9(cls) -> Self:
        """Return the loss with the paper's alpha 2, beta 50 and epsilon 0.5.

        The paper's equation has alpha at the negatives. This follows Wang et al. 2019, the source of both
        numbers, and the paper's released code, in which alpha scales the positives.
        """
        return cls(positive_scale=2.0, negative_scale=50.0)

    def __call__(self, anchors: Tensor, references: Tensor, pairs: HardPairs) -> Tensor:
        """Return the mean over anchors.  # ()"""
        above = _cosines(anchors, references) - self.offset  # (n, m)
        pull = _log_one_plus_sum(-self.positive_scale * above, pairs.positives) / self.positive_scale
        push = _log_one_plus_sum(self.negative_scale * above, pairs.negatives) / self.negative_scale
        return (pull + push).mean()


@dataclass(frozen=True, slots=True, kw_only=True)
class NeighbourhoodComponents:
    """Goldberger et al. 2005: the probability that a neighbour drawn by distance is a positive.

    Mean over anchors with a positive of -log(sum over positives of w / sum over all its pairs of w), where w
    is exp(-scale d²). Over all pairs of a batch this equals the library's `NCALoss`; with mined pairs the
    library would still draw from the whole batch, and push ambiguous names apart.
    """

    scale: float = 20.0
    """How fast the probability falls with the squared distance."""

    def __post_init__(self) -> None:
        _require_above_zero(scale=self.scale)

    def __call__(self, anchors: Tensor, references: Tensor, pairs: HardPairs) -> Tensor:
        """Return the mean over anchors with a positive.  # ()"""
        # -d² of unit vectors is 2 s - 2, and a constant cancels in the quotient.
        logits = 2 * self.scale * _cosines(anchors, references)  # (n, m)
        all_pairs = _log_sum(logits, pairs.positives | pairs.negatives)
        return _mean(all_pairs - _log_sum(logits, pairs.positives), pairs.positives.any(1))


@dataclass(frozen=True, slots=True)
class CosineEmbedding:
    """A simple cosine loss: mean of 1 - s over positives, plus mean of max(0, s) over negatives.

    The paper cites Phan et al. 2019 without a formula; they pull synonyms together by their cosine. That
    alone would map every name to one point, so negatives are pushed apart as in torch's
    `cosine_embedding_loss`. The two means are separate because a batch has hundreds of negatives per
    positive.
    """

    def __call__(self, anchors: Tensor, references: Tensor, pairs: HardPairs) -> Tensor:
        """Return the mean over positives plus the mean over negatives.  # ()"""
        cosines = _cosines(anchors, references)  # (n, m)
        return _mean(1 - cosines, pairs.positives) + _mean(cosines.relu(), pairs.negatives)


@dataclass(frozen=True, slots=True, kw_only=True)
class LiftedStructure:
    """Oh Song et al. 2016: a positive pair versus the negatives of both its names; mean over positives.

    A term is half the square of max(0, log(sum over the negatives of both of exp(margin - d)) + d).
    """

    margin: float = 0.5
    """Target distance of negatives; alpha in the paper."""

    def __post_init__(self) -> None:
        _require_above_zero(margin=self.margin)

    def __call__(self, anchors: Tensor, references: Tensor, pairs: HardPairs) -> Tensor:
        """Return the mean over positives.  # ()"""
        if len(anchors) != len(references):
            raise ValueError(
                "the lifted structure loss needs the negatives of every name, so all must be anchors"
            )
        with _full_precision(anchors):
            distances = torch.cdist(anchors, references)  # (n, n)
        push = _log_sum(self.margin - distances, pairs.negatives)  # (n,)
        terms = (torch.logaddexp(push[:, None], push) + distances).relu().square() / 2
        return _mean(terms, pairs.positives)


@dataclass(frozen=True, slots=True, kw_only=True)
class InfoNCE:
    """Oord et al. 2018: classify the positive among all negatives of its anchor; mean over positives."""

    temperature: float = 0.07
    """Cosines are divided by this; tau in the paper."""

    def __post_init__(self) -> None:
        _require_above_zero(temperature=self.temperature)

    def __call__(self, anchors: Tensor, references: Tensor, pairs: HardPairs) -> Tensor:
        """Return the mean over positives.  # ()"""
        logits = _cosines(anchors, references) / self.temperature  # (n, m)
        push = _log_sum(logits, pairs.negatives)[:, None]
        return _mean(functional.softplus(push - logits), pairs.positives)


class _FromLibrary(ABC):
    """A loss of pytorch-metric-learning, which takes pairs as four lists of row numbers.

    The library treats a batch with at most one positive and one negative pair as empty.
    """

    __slots__ = ()

    def __post_init__(self) -> None:
        _library()

    @abstractmethod
    def _build(self, losses: Any) -> Any:
        """Create the loss from the library's module of losses."""

    def __call__(self, anchors: Tensor, references: Tensor, pairs: HardPairs) -> Tensor:
        """Return the library's loss over these pairs.  # ()"""
        rows = (*pairs.positives.nonzero(as_tuple=True), *pairs.negatives.nonzero(as_tuple=True))
        with _full_precision(anchors):
            loss: Tensor = self._build(_library())(anchors, indices_tuple=rows, ref_emb=references)
        return loss


@dataclass(frozen=True, slots=True, kw_only=True)
class Circle(_FromLibrary):
    """Sun et al. 2020: each pair is weighted by its distance from its target; mean over anchors with loss."""

    margin: float = 0.25
    """Target: positives above 1 - margin, negatives below margin; m in the paper."""
    scale: float = 256.0
    """gamma in the paper."""

    def __post_init__(self) -> None:
        _require_cosine(margin=self.margin)
        _require_above_zero(scale=self.scale)
        _FromLibrary.__post_init__(self)

    def _build(self, losses: Any) -> Any:
        return losses.CircleLoss(m=self.margin, gamma=self.scale)


@dataclass(frozen=True, slots=True, kw_only=True)
class TripletMargin(_FromLibrary):
    """Max-margin triplets: max(0, d(a, p) - d(a, n) + margin); mean over triplets with loss > 0."""

    margin: float = 0.2
    """How much farther than the positive a negative should be; alpha in the paper."""

    def __post_init__(self) -> None:
        _require_above_zero(margin=self.margin)
        _FromLibrary.__post_init__(self)

    def _build(self, losses: Any) -> Any:
        return losses.TripletMarginLoss(margin=self.margin)


_LOSSES: dict[LossName, type[Any]] = {
    "ms": MultiSimilarity,
    "circle": Circle,
    "nca": NeighbourhoodComponents,
    "lifted": LiftedStructure,
    "infonce": InfoNCE,
    "triplet": TripletMargin,
    "cosine": CosineEmbedding,
}


def make_loss(name: LossName, parameters: Mapping[str, float] | None = None) -> Loss:
    """Return the loss of this name; `parameters` are its fields that differ from the defaults."""
    if name not in _LOSSES:
        raise ConfigError(f"loss is one of {', '.join(get_args(LossName))}; got {name!r}")
    parameters = parameters or {}
    known = [field.name for field in fields(_LOSSES[name])]
    for key in parameters:
        if key not in known:
            if not known:
                raise ConfigError(f"the {name} loss has no settings, got {key!r}")
            hint = suggestion(key, known) or f"; it has {', '.join(known)}"
            raise ConfigError(f"unknown setting {key!r} of the {name} loss{hint}")
    loss: Loss = _LOSSES[name](**parameters)
    return loss


def needs_pair_list(loss: Loss) -> bool:
    """Return whether a loss needs its pairs as lists, for which the CPU must wait for the device."""
    return isinstance(loss, _FromLibrary)


def _library() -> Any:
    try:
        return importlib.import_module("pytorch_metric_learning.losses")
    except ImportError as error:
        raise MissingExtraError("pytorch-metric-learning", "train") from error


def _cosines(anchors: Tensor, references: Tensor) -> Tensor:
    """Return the cosine of each anchor and reference.  # (n, m)"""
    with _full_precision(anchors):
        return anchors @ references.T


def _full_precision(vectors: Tensor) -> torch.autocast:
    """Turn mixed precision off: bfloat16 rounds a cosine to 1/256, and losses scale it by up to 256."""
    return torch.autocast(vectors.device.type, enabled=False)


def _log_one_plus_sum(exponents: Tensor, mask: Tensor) -> Tensor:
    """Return log(1 + sum of exp) over each row of the mask, without overflow.  # (n,)"""
    return functional.pad(exponents.masked_fill(~mask, -inf), (0, 1)).logsumexp(1)


def _log_sum(exponents: Tensor, mask: Tensor) -> Tensor:
    """Return log(sum of exp) over each row of the mask, or the lowest number if it is empty.  # (n,)"""
    # Not minus infinity, whose gradient would be NaN.
    return exponents.masked_fill(~mask, torch.finfo(exponents.dtype).min).logsumexp(1)


def _mean(terms: Tensor, mask: Tensor) -> Tensor:
    """Return the mean over the mask, or a zero with a gradient if it is empty.  # ()"""
    # Not indexed by the mask, as the CPU would have to wait for the size of the result.
    return terms.masked_fill(~mask, 0).sum() / mask.sum().clamp(min=1)


def _require_above_zero(**settings: float) -> None:
    for name, value in settings.items():
        if not 0 < value < inf:
            raise ConfigError(f"{name} must be above 0, got {value}")


def _require_cosine(**settings: float) -> None:
    for name, value in settings.items():
        if not -1 <= value <= 1:
            raise ConfigError(f"{name} is a cosine in [-1, 1], got {value}")
