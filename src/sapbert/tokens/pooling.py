"""From one vector a token to one vector a name.

The paper takes [CLS]; the reference code offers the others, and a model gives good vectors only with the
pooling that trained it, so the choice is written into the model folder (`encoder.model_folder`).

Uses tensor methods only, so that the names of the poolings can be had without loading torch.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


class Pooling(StrEnum):
    """Which tokens make the vector of a name."""

    CLS = "cls"
    """The first token, [CLS] or <s>: what the paper trains."""
    MEAN = "mean"
    """Mean over all tokens but padding; [CLS] and [SEP] count. What sentence-transformers calls mean."""
    MEAN_ALL = "mean-all-tokens"
    """Mean over all positions, padding too: a habit of the reference code, which pads every name to the same
    length. The vector depends on how far a batch is padded, so pad to a fixed width with this one."""
    FIRST = "first-token"
    """The first token of the name itself, after [CLS]."""
    NO_SPECIAL = "no-special"
    """Mean over the tokens of the name itself, without [CLS] and [SEP]."""


def pool(hidden: Tensor, attention_mask: Tensor, special_tokens_mask: Tensor, pooling: Pooling) -> Tensor:
    """Make one vector a row.  # (rows, tokens, dim), (rows, tokens), (rows, tokens) -> (rows, dim)

    Rows are padded on the right. An empty name has special tokens only: FIRST gives its [CLS] then, and
    NO_SPECIAL the mean of its special tokens.
    """
    attended = attention_mask.bool()
    if pooling is Pooling.CLS:
        return hidden[:, 0]
    if pooling is Pooling.MEAN:
        return _mean(hidden, attended)
    if pooling is Pooling.MEAN_ALL:
        return hidden.mean(1)
    own = attended & ~special_tokens_mask.bool()
    if pooling is Pooling.FIRST:
        # The first of equal maxima: position 0, [CLS], where no token is the name's own.
        first = own.int().argmax(1)[:, None, None].expand(-1, 1, hidden.shape[2])
        return hidden.gather(1, first)[:, 0]
    return _mean(hidden, own | (attended & ~own.any(1, keepdim=True)))


def _mean(hidden: Tensor, chosen: Tensor) -> Tensor:
    total = hidden.masked_fill(~chosen[:, :, None], 0).sum(1)  # (rows, dim)
    return total / chosen.sum(1, keepdim=True).clamp(min=1)
