"""One step of AdamW for all parameters in one kernel, in Triton; loaded only where a GPU is used.

An optimizer moves bytes and computes next to nothing. torch's reads gradients in float32, which are made of
those in bfloat16 by a pass before it, and the weights are copied to bfloat16 by one after it; here all is one
pass. The state is that of `torch.optim.AdamW`, in its place, so that checkpoints are the same.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
import triton
import triton.language as tl
from numpy.typing import NDArray
from torch import Tensor

BLOCK = 2048
"""Numbers that a program takes at most."""
_TOGETHER = 16
"""Numbers of a parameter are a multiple of this, and begin at one of as many bytes, so that a thread reads
several at once."""
COLUMNS = 6
"""Of a table: where weights, first and second means, gradients and copies begin, and how many there are."""

Which = Literal["all", "present", "absent"]


@triton.jit
def _step(
    table,
    present,
    rates,
    beta1,
    beta2,
    epsilon,
    decay,
    HALF: tl.constexpr,  # noqa: N803 - Triton's way to write what is known when a kernel is made
    COPIES: tl.constexpr,  # noqa: N803
    WHICH: tl.constexpr,  # noqa: N803
    BLOCK: tl.constexpr,  # noqa: N803
):
    row = table + tl.program_id(0) * 6
    place = tl.arange(0, BLOCK)
    numbers = tl.load(row + 5)
    if WHICH != "all":
        asked = tl.load(present + tl.program_id(0)) != 0
        numbers = tl.where(asked == (WHICH == "present"), numbers, 0)
    here = place < tl.multiple_of(numbers, 16)
    given = tl.bfloat16 if HALF else tl.float32
    own = tl.multiple_of(tl.load(row).to(tl.pointer_type(tl.float32)), 16) + place
    first = tl.multiple_of(tl.load(row + 1).to(tl.pointer_type(tl.float32)), 16) + place
    second = tl.multiple_of(tl.load(row + 2).to(tl.pointer_type(tl.float32)), 16) + place
    gradient = tl.zeros((BLOCK,), tl.float32)
    if WHICH != "absent":
        gradients = tl.multiple_of(tl.load(row + 3).to(tl.pointer_type(given)), 16) + place
        gradient = tl.load(gradients, here, 0.0).to(tl.float32)
    rate, first_share, second_share = tl.load(rates), tl.load(rates + 1), tl.load(rates + 2)
    mean = beta1 * tl.load(first, here, 0.0) + (1 - beta1) * gradient
    square = beta2 * tl.load(second, here, 0.0) + (1 - beta2) * gradient * gradient
    weight = tl.load(own, here, 0.0) * (1 - rate * decay)
    weight -= rate / first_share * mean / (tl.sqrt(square) / second_share + epsilon)
    tl.store(own, weight, here)
    tl.store(first, mean, here)
    tl.store(second, square, here)
    if COPIES:
        copies = tl.multiple_of(tl.load(row + 4).to(tl.pointer_type(given)), 16) + place
        tl.store(copies, weight.to(given), here)


def programs(numbers: int, block: int) -> int:
    """Return how many programs, each a row of a table, take the step of a parameter with so many numbers."""
    return -(-numbers // block)


def rows_of(
    own: Tensor, first: Tensor, second: Tensor, gradient: Tensor, copy: Tensor, block: int
) -> NDArray[np.int64]:
    """Write down where programs find a parameter, each a block of it; what is there may change later.

    # (programs, 6)
    """
    numbers, parts = own.numel(), (own, first, second, gradient, copy)
    if any(part.numel() != numbers or not part.is_contiguous() for part in parts):
        raise ValueError("all that a step reads and writes of a parameter is contiguous and of one size")
    if any(place % _TOGETHER for place in (numbers, block, *(part.data_ptr() for part in parts))):
        raise ValueError(f"a parameter of {numbers} numbers is not laid out in multiples of {_TOGETHER}")
    starts = np.arange(0, numbers, block)
    columns = [part.data_ptr() + starts * part.element_size() for part in parts]
    return np.stack([*columns, np.minimum(numbers - starts, block)], axis=1)


def step(
    table: Tensor,
    present: Tensor,
    rates: Tensor,
    betas: tuple[float, float],
    epsilon: float,
    decay: float,
    *,
    half: bool,
    copies: bool,
    which: Which = "all",
) -> None:
    """Take one step; gradients and copies are bfloat16 if `half`, and weights are copied if `copies`.

    `rates` (3,) are the learning rate, and how much of the two means is there after so many steps: of the
    second its root. Of the rows of the table, `which` asks for those that are `present` (rows,), or for those
    that are not, which have no gradient and need none to be there.
    """
    options = {"HALF": half, "COPIES": copies, "WHICH": which, "BLOCK": BLOCK, "num_warps": 4}
    _step[(len(table),)](table, present, rates, *betas, epsilon, decay, **options)
