"""Attention within names that share rows: the plain way, and as one kernel on a GPU.

A row holds several names, and a token may look at tokens of its own name only. The plain way computes the
scores of a whole row, drops those across names, and runs anywhere. Written out so, it is ten kernels a layer
that each pass (rows, heads, width, width) numbers through memory, which takes longer than the products; the
kernel here holds one head of one row on the chip, and computes the chances again for the gradient.

The kernel draws its dropout from a hash of a seed and the place of a score: what forward dropped, backward
must drop too, and a seed that lies on the device lets a captured graph drop others with each replay.
"""

from __future__ import annotations

import logging
from functools import cache
from math import inf
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional

_HEADS = (16, 32, 64, 128)
"""What a kernel lays out on the chip is a power of two, and at least what a matrix unit takes."""
log = logging.getLogger(__name__)


class Attend(Protocol):
    """How the tokens of names look at each other."""

    def __call__(self, qkv: Tensor, names: Tensor, heads: int, width: int, dropout: float) -> Tensor:
        """Attend within names.

        `qkv` holds query, key and value of each token side by side, `names` the number of its name; rows are
        `width` tokens each.  # (tokens, 3 dim), (tokens,) -> (tokens, dim)
        """
        ...


def attend_plainly(qkv: Tensor, names: Tensor, heads: int, width: int, dropout: float) -> Tensor:
    """Attend with matrix products and a softmax."""
    query, key, value = qkv.view(-1, width, 3, heads, qkv.shape[1] // 3 // heads).permute(2, 0, 3, 1, 4)
    name = names.view(-1, 1, width)
    same = (name.transpose(1, 2) == name)[:, None]  # (rows, 1, width, width)
    scores = (query @ key.transpose(2, 3)) * key.shape[-1] ** -0.5
    chances = dropped(scores.masked_fill(~same, -inf).softmax(-1), dropout)
    found: Tensor = chances @ value  # (rows, heads, width, head)
    return found.transpose(1, 2).reshape(len(qkv), -1)


def dropped(tensor: Tensor, dropout: float) -> Tensor:
    """Drop numbers out; where none are to be dropped nothing is drawn."""
    return functional.dropout(tensor, dropout) if dropout else tensor


@cache
def attention_for(device: torch.device, *, head: int) -> Attend:
    """Return the fastest way to attend on a device with heads of this size; it is tried, and told, once."""
    if device.type != "cuda" or head not in _HEADS:
        return attend_plainly
    try:
        from sapbert.encoder.attention_kernel import attend_in_kernel

        # Tried, since Triton needs a C compiler, and looks for it no sooner than it must.
        tokens = torch.zeros(_HEADS[0], 3 * head, dtype=torch.bfloat16, device=device)
        attend_in_kernel(tokens, torch.zeros_like(tokens[:, 0], dtype=torch.int32), 1, len(tokens), 0.0)
    except Exception as error:  # noqa: BLE001 - in whatever way a compiler or a driver fails
        log.warning("attention has no kernel here (%s); going the plain way", str(error).partition("\n")[0])
        return attend_plainly
    return attend_in_kernel
