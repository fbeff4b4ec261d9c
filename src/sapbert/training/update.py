"""Takes an optimizer's steps inside a captured graph, where bfloat16 gradients and weights are at hand.

The optimizer stays what it is, with its learning rate and its state: its tensors are changed in their place.
To it there is nothing to do, as parameters have no gradient when it is asked to step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sapbert.encoder.bert import RowEncoder
from sapbert.encoder.kernels import hold
from sapbert.encoder.transfer import sendable
from sapbert.training import adamw_kernel

_Tables = tuple[Tensor, Tensor]
_TRIED = 4112
"""Numbers of a parameter that is tried: more than a program takes, and not a multiple of that."""
_ROUNDING, _HALF_ROUNDING = 1e-5, 2.0**-7
"""By norm, of steps and of their copies."""


class Update:
    """Steps of AdamW over the parameters that a `RowEncoder` has copied, and over those it has not."""

    def __init__(self, optimizer: torch.optim.Optimizer, encode: RowEncoder) -> None:
        """Try the kernel, take up the state of the optimizer, and make what of it is not there yet."""
        if type(optimizer) is not torch.optim.AdamW or len(optimizer.param_groups) > 1:
            raise ValueError("they take steps of AdamW over all parameters alike")
        (self._group,) = optimizer.param_groups
        self._encode, self._states = encode, optimizer.state
        self._parameters = list(encode.model.parameters())
        device = self._parameters[0].device
        # It is made when first asked for as well, which a graph that is captured cannot wait for.
        _try(device)
        for parameter in self._parameters:
            if not self._states[parameter]:
                self._states[parameter] = _state(parameter)
        self._steps = [self._states[parameter]["step"] for parameter in self._parameters]
        self._done = int(self._steps[0])
        self._rates = torch.ones(3, device=device)
        # Refuses parameters that the kernel cannot take; gradients are laid out as what they are of.
        self.fill(self.tables(), self._encode.leaves)

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
        self._rates.copy_(sendable(_rates(self._group, self._done), self._rates.device), non_blocking=True)

    def take(self, tables: _Tables) -> None:
        """Take the step."""
        torch._foreach_add_(self._steps, 1)
        copied, others = tables
        half = self._encode.dtype == torch.bfloat16
        _change(copied, self._rates, self._group, half=half, copies=True)
        _change(others, self._rates, self._group, half=False, copies=False)


def _state(parameter: Tensor) -> dict[str, Tensor]:
    """What AdamW knows of a parameter before the first step."""
    return {
        "step": torch.zeros((), device=parameter.device),
        "exp_avg": torch.zeros_like(parameter),
        "exp_avg_sq": torch.zeros_like(parameter),
    }


def _rates(group: Mapping[str, Any], number: int) -> NDArray[np.float32]:
    """What the kernel is told of step `number`, the first of which is 1."""
    first, second = (1 - beta**number for beta in group["betas"])
    return np.array([group["lr"], first, second**0.5], np.float32)


def _change(table: Tensor, rates: Tensor, group: Mapping[str, Any], *, half: bool, copies: bool) -> None:
    settings = rates, group["betas"], group["eps"], group["weight_decay"]
    adamw_kernel.step(table, *settings, half=half, copies=copies)


def _try(device: torch.device) -> None:
    """Take steps over small tensors, copied and not, and hold them against torch's own."""
    rng = torch.Generator().manual_seed(0)
    for half in (True, False):
        given = torch.bfloat16 if half else torch.float32
        own = torch.randn(_TRIED, generator=rng).to(device)
        theirs = own.clone().requires_grad_()
        optimizer = torch.optim.AdamW([theirs], lr=0.1, weight_decay=0.1, fused=True)
        group, state, copy = optimizer.param_groups[0], _state(own), own.to(given)
        for number in (1, 2):
            gradient = torch.randn(_TRIED, generator=rng).to(device, given)
            theirs.grad = gradient.float()
            optimizer.step()
            places = adamw_kernel.rows_of(own, state["exp_avg"], state["exp_avg_sq"], gradient, copy)
            rates = torch.from_numpy(_rates(group, number)).to(device)
            _change(torch.from_numpy(places).to(device), rates, group, half=half, copies=half)
        found, expected = (
            [weights, of["exp_avg"], of["exp_avg_sq"]]
            for weights, of in ((own, state), (theirs.detach(), optimizer.state[theirs]))
        )
        hold(found, expected, tolerance=_ROUNDING)
        if half:
            hold([copy], [own], tolerance=_HALF_ROUNDING)
