"""The seven losses of the paper's Table 6, with the settings its Table 9 marks as used.

A loss takes unit vectors in float32 and the pairs that mining kept. What is in neither mask plays no part, so
names that share a concept only through an ambiguous text are never pushed apart; a batch without pairs costs
exactly zero and has a zero gradient.

Two are pytorch-metric-learning's, fed with our pairs. Multi-similarity, lifted structure and InfoNCE are
ours, one pass over the similarities of the batch: for the last two the library holds each positive against
the list of all negatives, half a gigabyte at 512 names. NCA and cosine are ours because its `NCALoss` takes
all names of a batch whatever was mined, and it has no cosine loss. Ours never wait for the device.

Each loss is a mean, but not of the same things: of anchors, of pairs, or of triplets with any loss. Processes
that share a batch may split the multi-similarity loss by anchors, as each anchor counts once with or without
pairs; any other loss they must each take over all names gathered.
"""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, fields
from math import inf
from typing import Any, Literal, Protocol, Self, get_args

import torch
from torch import Tensor
from torch.nn import functional

from sapbert.errors import ConfigError, MissingExtraError, suggestion
from sapbert.training.alignment.mining import HardPairs

LossName = Literal["ms", "circle", "nca", "lifted", "infonce", "triplet", "cosine"]


class Loss(Protocol):
    """What a training step minimises."""

    def __call__(self, anchors: Tensor, references: Tensor, pairs: HardPairs) -> Tensor:
        """Return the loss of anchors (n, d) against references (m, d), whose pairs are (n, m) masks.  # ()"""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class MultiSimilarity:
    """Wang et al. 2019: the worst pairs of an anchor weigh most, softly.

    Mean over all anchors, those without pairs counting as 0, of
    log(1 + sum over positives of exp(-positive_scale (s - offset))) / positive_scale, plus
    log(1 + sum over negatives of exp(negative_scale (s - offset))) / negative_scale.

    The defaults are those of the released code, and the value is that of pytorch-metric-learning's
    `MultiSimilarityLoss(alpha=1, beta=60, base=0.5)`, save that the library takes a batch with a single
    triplet for an empty one.
    """

    positive_scale: float = 1.0
    """`alpha` in Wang et al. and in the library."""
    negative_scale: float = 60.0
    """`beta` in Wang et al. and in the library."""
    offset: float = 0.5
    """The cosine around which pairs begin to weigh; epsilon in the paper."""

    def __post_init__(self) -> None:
        _require_above_zero(positive_scale=self.positive_scale, negative_scale=self.negative_scale)
        _require_cosine(offset=self.offset)

    @classmethod
    def of_table_9(cls) -> Self:
        """Make the loss with the paper's alpha 2, beta 50 and epsilon 0.5.

        The paper's equation prints alpha at the negatives. We follow the work it takes both numbers from
        (Wang et al. 2019) and its own released code, where alpha scales the positives.
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
    """Goldberger et al. 2005: the chance that an anchor's neighbour, drawn by distance, is a positive.

    Mean over anchors with a positive of -log(sum over positives of w / sum over all its pairs of w), where w
    is exp(-scale d²). Over all pairs of a batch this is the library's `NCALoss`; over mined pairs the library
    would still draw from the whole batch, and push ambiguous names apart.
    """

    scale: float = 20.0
    """How fast the chance falls with the squared distance."""

    def __post_init__(self) -> None:
        _require_above_zero(scale=self.scale)

    def __call__(self, anchors: Tensor, references: Tensor, pairs: HardPairs) -> Tensor:
        """Return the mean over anchors with a positive.  # ()"""
        # -d² of unit vectors is 2 s - 2, and a constant cancels in the quotient.
        logits = 2 * self.scale * _cosines(anchors, references)  # (n, m)
        drawn = _log_sum(logits, pairs.positives | pairs.negatives)
        return _mean(drawn - _log_sum(logits, pairs.positives), pairs.positives.any(1))


@dataclass(frozen=True, slots=True)
class CosineEmbedding:
    """A simple cosine loss: mean of 1 - s over positives, plus mean of max(0, s) over negatives.

    The paper names Phan et al. 2019 and gives no formula; they draw synonyms together by their cosine. That
    alone would map every name to one point, so negatives are pushed as in torch's `cosine_embedding_loss`.
    The two means are apart because a batch has hundreds of negatives for one positive.
    """

    def __call__(self, anchors: Tensor, references: Tensor, pairs: HardPairs) -> Tensor:
        """Return the mean over positives plus the mean over negatives.  # ()"""
        cosines = _cosines(anchors, references)  # (n, m)
        return _mean(1 - cosines, pairs.positives) + _mean(cosines.relu(), pairs.negatives)


@dataclass(frozen=True, slots=True, kw_only=True)
class LiftedStructure:
    """Oh Song et al. 2016: a positive pair against the negatives of both its names; mean over positives.

    A term is half the square of log(sum over the negatives of both of exp(margin - d)) + d, where above 0.
    """

    margin: float = 0.5
    """The distance negatives shall keep; alpha in the paper."""

    def __post_init__(self) -> None:
        _require_above_zero(margin=self.margin)

    def __call__(self, anchors: Tensor, references: Tensor, pairs: HardPairs) -> Tensor:
        """Return the mean over positives.  # ()"""
        if len(anchors) != len(references):
            raise ValueError(
                "the lifted structure loss needs the negatives of every name: all must be anchors"
            )
        with _full_precision(anchors):
            distances = torch.cdist(anchors, references)  # (n, n)
        push = _log_sum(self.margin - distances, pairs.negatives)  # (n,)
        terms = (torch.logaddexp(push[:, None], push) + distances).relu().square() / 2
        return _mean(terms, pairs.positives)


@dataclass(frozen=True, slots=True, kw_only=True)
class InfoNCE:
    """Oord et al. 2018: tell the one positive from all negatives of its anchor; mean over positives."""

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

    The library takes a batch with at most one positive and one negative pair for an empty one.
    """

    __slots__ = ()

    def __post_init__(self) -> None:
        _library()

    @abstractmethod
    def _build(self, losses: Any) -> Any:
        """Make the loss from the library's module of losses."""

    def __call__(self, anchors: Tensor, references: Tensor, pairs: HardPairs) -> Tensor:
        """Return the library's loss over these pairs.  # ()"""
        rows = (*pairs.positives.nonzero(as_tuple=True), *pairs.negatives.nonzero(as_tuple=True))
        with _full_precision(anchors):
            loss: Tensor = self._build(_library())(anchors, indices_tuple=rows, ref_emb=references)
        return loss


@dataclass(frozen=True, slots=True, kw_only=True)
class Circle(_FromLibrary):
    """Sun et al. 2020: each pair weighs by how far it is from its goal; mean over anchors with any loss."""

    margin: float = 0.25
    """Positives shall be above 1 - margin, negatives below margin; m in the paper."""
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
    """Max-margin triplets: d(a, p) - d(a, n) + margin where above 0; mean over triplets with any loss."""

    margin: float = 0.2
    """How much farther than the positive a negative shall be; alpha in the paper."""

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
    """Make the loss of this name; `parameters` are its fields where they differ from the defaults."""
    if name not in _LOSSES:
        raise ConfigError(f"loss is one of {', '.join(get_args(LossName))}; got {name!r}")
    parameters = parameters or {}
    known = [field.name for field in fields(_LOSSES[name])]
    for key in parameters:
        if key not in known:
            hint = suggestion(key, known) or f"; it has {', '.join(known) or 'none'}"
            raise ConfigError(f"the {name} loss has no setting {key!r}{hint}")
    loss: Loss = _LOSSES[name](**parameters)
    return loss


def needs_pair_list(loss: Loss) -> bool:
    """Tell whether a loss must see its pairs listed, for which it waits for the device."""
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
    """Suspend mixed precision: bfloat16 would round a cosine to 1/256, and losses scale it by up to 256."""
    return torch.autocast(vectors.device.type, enabled=False)


def _log_one_plus_sum(exponents: Tensor, mask: Tensor) -> Tensor:
    """Return log(1 + sum of exp) over each row of the mask, without overflow.  # (n,)"""
    return functional.pad(exponents.masked_fill(~mask, -inf), (0, 1)).logsumexp(1)


def _log_sum(exponents: Tensor, mask: Tensor) -> Tensor:
    """Return log(sum of exp) over each row of the mask; where it is empty the lowest number.  # (n,)"""
    # Not minus infinity, whose gradient would be no number.
    return exponents.masked_fill(~mask, torch.finfo(exponents.dtype).min).logsumexp(1)


def _mean(terms: Tensor, mask: Tensor) -> Tensor:
    """Return the mean over the mask, or a zero that still has a gradient where it is empty.  # ()"""
    # Not indexed by the mask: to know how many there are is to wait for the device.
    return terms.masked_fill(~mask, 0).sum() / mask.sum().clamp(min=1)


def _require_above_zero(**settings: float) -> None:
    for name, value in settings.items():
        if not 0 < value < inf:
            raise ConfigError(f"{name} must be above 0, got {value}")


def _require_cosine(**settings: float) -> None:
    for name, value in settings.items():
        if not -1 <= value <= 1:
            raise ConfigError(f"{name} is a cosine in [-1, 1], got {value}")
