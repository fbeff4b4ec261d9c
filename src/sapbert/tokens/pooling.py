"""Pool token vectors into one vector per name.

The paper uses [CLS]; the reference code offers the others. A model gives good vectors only with the pooling
it was trained with, so the pooling is written to the model folder (`encoder.model_folder`).

Only tensor methods are used, so that this module does not import torch.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from torch import Tensor

PoolingName = Literal["cls", "mean", "mean-all-tokens", "first-token", "no-special"]
"""The values of `Pooling`, as they are written in recipes and on the command line."""


class Pooling(StrEnum):
    """How the vector of a name is computed from the vectors of its tokens."""

    CLS = "cls"
    """The first token, [CLS] or <s>, as in the paper."""
    MEAN = "mean"
    """Mean over all tokens except padding, with [CLS] and [SEP], as in sentence-transformers."""
    MEAN_ALL = "mean-all-tokens"
    """Mean over all positions, with padding, as in the reference code, which pads every name to one length.
    The vector depends on the padded length, so batches must be padded to a fixed one."""
    FIRST = "first-token"
    """The first token of the name, after [CLS]."""
    NO_SPECIAL = "no-special"
    """Mean over the tokens of the name, without [CLS] and [SEP]."""


def pool(hidden: Tensor, attention_mask: Tensor, special_tokens_mask: Tensor, pooling: Pooling) -> Tensor:
    """Return one vector per row.  # (rows, tokens, dim), (rows, tokens), (rows, tokens) -> (rows, dim)

    Rows are padded on the right. An empty name has only special tokens: FIRST then returns its [CLS], and
    NO_SPECIAL the mean of its special tokens.
    """
    attended = attention_mask.bool()
    if pooling is Pooling.CLS:
        return hidden[:, 0]
    if pooling is Pooling.MEAN:
        return _mean(hidden, attended)
    if pooling is Pooling.MEAN_ALL:
        return hidden.mean(1)
    of_name = attended & ~special_tokens_mask.bool()
    if pooling is Pooling.FIRST:
        # argmax returns the first of equal maxima: position 0, [CLS], for an empty name.
        first = of_name.int().argmax(1)[:, None, None].expand(-1, 1, hidden.shape[2])
        return hidden.gather(1, first)[:, 0]
    return _mean(hidden, of_name | (attended & ~of_name.any(1, keepdim=True)))


def _mean(hidden: Tensor, mask: Tensor) -> Tensor:
    total = hidden.masked_fill(~mask[:, :, None], 0).sum(1)  # (rows, dim)
    return total / mask.sum(1, keepdim=True).clamp(min=1)
