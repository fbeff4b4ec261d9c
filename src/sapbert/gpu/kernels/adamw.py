"""AdamW updates of all parameters in one Triton kernel.

An optimizer is limited by memory bandwidth. `torch.optim.AdamW` reads float32 gradients, so bfloat16
gradients must be converted in a pass before it and weights copied to bfloat16 in a pass after it; here it is
all one pass. The state is that of `torch.optim.AdamW`, updated in place, so that checkpoints are the same.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
import triton
import triton.language as tl
from numpy.typing import NDArray
from torch import Tensor

BLOCK = 2048
"""Numbers that one program handles at most."""
_MULTIPLE = 16
"""Sizes and byte addresses are multiples of this, so that a thread reads several numbers at once."""
COLUMNS = 6
"""Columns of a table: addresses of weights, first and second moments, gradients and copies, and the size."""

Rows = Literal["all", "present", "absent"]


@triton.jit
def _update(
    table,
    present,
    rates,
    beta1,
    beta2,
    epsilon,
    decay,
    HALF: tl.constexpr,  # noqa: N803 - Triton's convention for constants
    COPIES: tl.constexpr,  # noqa: N803
    ROWS: tl.constexpr,  # noqa: N803
    BLOCK: tl.constexpr,  # noqa: N803
):
    row = table + tl.program_id(0) * 6
    offset = tl.arange(0, BLOCK)
    size = tl.load(row + 5)
    if ROWS != "all":
        is_present = tl.load(present + tl.program_id(0)) != 0
        size = tl.where(is_present == (ROWS == "present"), size, 0)
    here = offset < tl.multiple_of(size, 16)
    dtype = tl.bfloat16 if HALF else tl.float32
    weights = tl.multiple_of(tl.load(row).to(tl.pointer_type(tl.float32)), 16) + offset
    first = tl.multiple_of(tl.load(row + 1).to(tl.pointer_type(tl.float32)), 16) + offset
    second = tl.multiple_of(tl.load(row + 2).to(tl.pointer_type(tl.float32)), 16) + offset
    gradient = tl.zeros((BLOCK,), tl.float32)
    if ROWS != "absent":
        gradients = tl.multiple_of(tl.load(row + 3).to(tl.pointer_type(dtype)), 16) + offset
        gradient = tl.load(gradients, here, 0.0).to(tl.float32)
    rate, first_correction, second_correction = tl.load(rates), tl.load(rates + 1), tl.load(rates + 2)
    mean = beta1 * tl.load(first, here, 0.0) + (1 - beta1) * gradient
    square = beta2 * tl.load(second, here, 0.0) + (1 - beta2) * gradient * gradient
    weight = tl.load(weights, here, 0.0) * (1 - rate * decay)
    weight -= rate / first_correction * mean / (tl.sqrt(square) / second_correction + epsilon)
    tl.store(weights, weight, here)
    tl.store(first, mean, here)
    tl.store(second, square, here)
    if COPIES:
        copies = tl.multiple_of(tl.load(row + 4).to(tl.pointer_type(dtype)), 16) + offset
        tl.store(copies, weight.to(dtype), here)


def programs(size: int, block: int) -> int:
    """Return how many programs, each with one table row, update a parameter of this size."""
    return -(-size // block)


def table_rows(
    weights: Tensor, first: Tensor, second: Tensor, gradient: Tensor, copy: Tensor, block: int
) -> NDArray[np.int64]:
    """Return the addresses of a parameter's blocks, one row per program; the values there may change later.

    # (programs, 6)
    """
    size, parts = weights.numel(), (weights, first, second, gradient, copy)
    if any(part.numel() != size or not part.is_contiguous() for part in parts):
        raise ValueError("a parameter, its state, gradient and copy must be contiguous and of one size")
    if any(value % _MULTIPLE for value in (size, block, *(part.data_ptr() for part in parts))):
        raise ValueError(f"size and addresses of a parameter of size {size} must be multiples of {_MULTIPLE}")
    starts = np.arange(0, size, block)
    columns = [part.data_ptr() + starts * part.element_size() for part in parts]
    return np.stack([*columns, np.minimum(size - starts, block)], axis=1)


def update(
    table: Tensor,
    present: Tensor,
    rates: Tensor,
    betas: tuple[float, float],
    epsilon: float,
    decay: float,
    *,
    half: bool,
    copies: bool,
    rows: Rows = "all",
) -> None:
    """Update the parameters in `table`; gradients and copies are bfloat16 if `half`.

    `rates` (3,) are the learning rate and the bias corrections of the two moments, of the second its square
    root. Weights are copied if `copies`. `rows` selects all rows of the table, those marked in `present`
    (rows,), or the unmarked ones; the latter are updated with a gradient of zero, which is not read.
    """
    options = {"HALF": half, "COPIES": copies, "ROWS": rows, "BLOCK": BLOCK, "num_warps": 4}
    _update[(len(table),)](table, present, rates, *betas, epsilon, decay, **options)
