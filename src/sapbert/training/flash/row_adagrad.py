"""Adagrad with one step size per row, for a table of which a step uses few rows.

The state is one number per row: the sum of the mean squares of its gradients. Rows without a gradient are
neither read nor written, so a step on a CPU takes milliseconds however large the table is, and a checkpoint
is hardly larger than the table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

_SUM = "sum"
_TINY = 1e-20


class RowAdagrad(torch.optim.Optimizer):
    """Updates the rows of tables for which their sparse gradient has values."""

    def __init__(self, groups: Iterable[dict[str, Any]], *, lr: float) -> None:
        super().__init__(groups, {"lr": lr})
        for group in self.param_groups:
            for table in group["params"]:
                self.state[table][_SUM] = table.new_zeros(len(table))

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Apply the gradients."""
        if closure is not None:
            raise ValueError("RowAdagrad takes no closure")
        for group in self.param_groups:
            for table in group["params"]:
                if table.grad is not None:
                    update_rows(table, self.state[table][_SUM], table.grad, group["lr"])


def update_rows(table: Tensor, sums: Tensor, gradient: Tensor, learning_rate: float) -> None:
    """Update `table` and `sums` in place by a coalesced sparse gradient."""
    rows, values = gradient._indices()[0], gradient._values()  # noqa: SLF001 - torch has no public way without a copy
    updated = sums[rows].add_(values.square().mean(dim=1))
    sums[rows] = updated
    table.index_add_(0, rows, values * updated.add_(_TINY).rsqrt_()[:, None], alpha=-learning_rate)
