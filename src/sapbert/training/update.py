"""Takes an optimizer's steps inside a captured graph, where bfloat16 gradients and weights are at hand.

The optimizer stays what it is, with its learning rate and its state: its tensors are changed in their place.
To it there is nothing to do, as parameters have no gradient when it is asked to step.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sapbert.encoder.bert import RowEncoder
from sapbert.encoder.transfer import sendable
from sapbert.training import adamw_kernel

_Tables = tuple[Tensor, Tensor]


class Update:
    """Steps of AdamW over the parameters that a `RowEncoder` has copied, and over those it has not."""

    def __init__(self, optimizer: torch.optim.AdamW, encode: RowEncoder) -> None:
        """Take up the state of the optimizer, and make what of it is not there yet."""
        (self._group,) = optimizer.param_groups
        self._encode, self._states = encode, optimizer.state
        self._parameters = list(encode.model.parameters())
        device = self._parameters[0].device
        for parameter in self._parameters:
            if not self._states[parameter]:
                self._states[parameter] = {
                    "step": torch.zeros((), device=device),
                    "exp_avg": torch.zeros_like(parameter),
                    "exp_avg_sq": torch.zeros_like(parameter),
                }
        self._steps = [self._states[parameter]["step"] for parameter in self._parameters]
        self._done = int(self._steps[0])
        self._rates = torch.ones(3, device=device)
        # Kernels are made when first asked for, which a graph that is captured cannot wait for.
        copied, others = self.tables()
        self._change((copied[:0], others[:0]))

    def tables(self) -> _Tables:
        """Make room for where to find copied parameters and others; all graphs have their own gradients."""
        rows = [0, 0]
        for own, _, copy in self._encode.trained(self._encode.leaves):
            rows[copy is None] += adamw_kernel.programs(own.numel())
        copied, others = (self._rates.new_zeros(n, adamw_kernel.COLUMNS, dtype=torch.int64) for n in rows)
        return copied, others

    def fill(self, tables: _Tables, found: Sequence[Tensor]) -> None:
        """Write down where the gradients lie that were found of the encoder's leaves, and all else."""
        rows: tuple[list[NDArray[np.int64]], list[NDArray[np.int64]]] = ([], [])
        for own, gradient, copy in self._encode.trained(found):
            state = self._states[own]
            parts = (own.detach(), state["exp_avg"], state["exp_avg_sq"], gradient)
            rows[copy is None].append(adamw_kernel.rows_of(*parts, gradient if copy is None else copy))
        for table, places in zip(tables, rows, strict=True):
            table.copy_(torch.from_numpy(np.concatenate(places)))

    def begin(self) -> None:
        """Tell the device the rates of the next step."""
        self._done += 1
        first, second = (1 - beta**self._done for beta in self._group["betas"])
        rates = np.array([self._group["lr"], first, second**0.5], np.float32)
        self._rates.copy_(sendable(rates, self._rates.device), non_blocking=True)

    def take(self, tables: _Tables) -> None:
        """Take the step."""
        torch._foreach_add_(self._steps, 1)
        self._change(tables)

    def _change(self, tables: _Tables) -> None:
        group = self._group
        settings = self._rates, group["betas"], group["eps"], group["weight_decay"]
        copied, others = tables
        adamw_kernel.step(copied, *settings, half=self._encode.dtype == torch.bfloat16, copies=True)
        adamw_kernel.step(others, *settings, half=False, copies=False)
