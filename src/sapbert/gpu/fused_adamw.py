"""Takes an optimizer's steps inside a captured graph, where bfloat16 gradients and weights are at hand.

The optimizer stays what it is, with its learning rate and its state: its tensors are changed in their place.
To it there is nothing to do, as parameters have no gradient when it is asked to step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sapbert.gpu.bert import RowEncoder
from sapbert.gpu.kernels import adamw as adamw_kernel
from sapbert.gpu.transfer import sendable
from sapbert.gpu.verify import hold

_TRIED = 4112
"""Numbers of a parameter that is tried: more than a program takes, and not a multiple of that."""
_WHOLE: tuple[adamw_kernel.Which, ...] = ("all",)
_PARTS: tuple[adamw_kernel.Which, ...] = ("absent", "present")
_ROUNDING, _HALF_ROUNDING = 1e-5, 2.0**-7
"""By norm, of steps and of their copies."""


class Tables(NamedTuple):
    """Where the kernel finds parameters and what belongs to them."""

    layers: Tensor
    """Of all layers, one after the other; they are copied."""
    words: Tensor
    """Embeddings of words, some of them a row."""
    others: Tensor


class Update:
    """Steps of AdamW over the parameters of a `RowEncoder`.

    They are taken in parts, each as soon as its gradients are found. Most words are in no name of a batch:
    without a gradient, their steps are taken before there is any.
    """

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
        self._words: Tensor = encode.model.get_submodule("embeddings").get_parameter("word_embeddings.weight")
        self._words_a_row = adamw_kernel.BLOCK // self._words.shape[1]
        if not self._words_a_row:
            raise ValueError(f"a word of {self._words.shape[1]} numbers is more than a program takes")
        self._present = torch.zeros(len(self._words) // self._words_a_row + 1, device=device)
        # Refuses parameters that the kernel cannot take; gradients are laid out as what they are of.
        self.fill(self.tables(), self._encode.leaves)

    def tables(self) -> Tables:
        """Make room for where to find parameters; all graphs have their own gradients."""
        rows = [0, 0, 0]
        for own, _, copy in self._encode.trained(self._encode.leaves):
            rows[self._table_of(own, copy)] += adamw_kernel.programs(own.numel(), self._block_of(own))
        return Tables(
            *(self._rates.new_zeros(count, adamw_kernel.COLUMNS, dtype=torch.int64) for count in rows)
        )

    def fill(self, tables: Tables, found: Sequence[Tensor]) -> None:
        """Write down where the gradients lie that were found of the encoder's leaves, and all else."""
        rows: tuple[list[NDArray[np.int64]], ...] = ([], [], [])
        for own, gradient, copy in self._encode.trained(found):
            state = self._states[own]
            parts = (own.detach(), state["exp_avg"], state["exp_avg_sq"], gradient)
            places = adamw_kernel.rows_of(*parts, gradient if copy is None else copy, self._block_of(own))
            rows[self._table_of(own, copy)].append(places)
        for table, every in zip(tables, rows, strict=True):
            table.copy_(torch.from_numpy(np.concatenate(every)))

    def _table_of(self, own: Tensor, copy: Tensor | None) -> int:
        return 0 if copy is not None else 1 if own is self._words else 2

    def _block_of(self, own: Tensor) -> int:
        """Numbers that a program takes: of words whole ones."""
        return self._words_a_row * own.shape[1] if own is self._words else adamw_kernel.BLOCK

    def begin(self) -> None:
        """Tell the device the rates of the next step."""
        self._done += 1
        self._rates.copy_(sendable(_rates(self._group, self._done), self._rates.device), non_blocking=True)

    def take_absent(self, tables: Tables, ids: Tensor) -> None:
        """Take the step of words that are not among the tokens `ids`."""
        self._present.zero_().index_fill_(0, ids.long() // self._words_a_row, 1)
        self._take(tables.words, which="absent")

    def take_layer(self, tables: Tables, number: int) -> None:
        """Take the step of one layer; all have as many parameters."""
        half = self._encode.dtype == torch.bfloat16
        self._take(tables.layers.chunk(self._encode.layers)[number], half=half, copies=True)

    def take_rest(self, tables: Tables) -> None:
        """Take the step of all that is left, and count it."""
        torch._foreach_add_(self._steps, 1)
        self._take(tables.words, which="present")
        self._take(tables.others)

    def _take(
        self,
        table: Tensor,
        *,
        half: bool = False,
        copies: bool = False,
        which: adamw_kernel.Which = "all",
    ) -> None:
        group = self._group
        settings = self._present, self._rates, group["betas"], group["eps"], group["weight_decay"]
        adamw_kernel.step(table, *settings, half=half, copies=copies, which=which)


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


def _try(device: torch.device) -> None:
    """Take steps over small tensors, copied and not, and hold them against torch's own."""
    rng = torch.Generator().manual_seed(0)
    block = adamw_kernel.BLOCK
    for half in (True, False):
        given = torch.bfloat16 if half else torch.float32
        own = torch.randn(_TRIED, generator=rng).to(device)
        theirs = own.clone().requires_grad_()
        optimizer = torch.optim.AdamW([theirs], lr=0.1, weight_decay=0.1, fused=True)
        group, state, copy = optimizer.param_groups[0], _state(own), own.to(given)
        for number in (1, 2):
            gradient = torch.randn(_TRIED, generator=rng).to(device, given)
            gradient[block : 2 * block] *= half
            theirs.grad = gradient.float()
            optimizer.step()
            parts = own, state["exp_avg"], state["exp_avg_sq"], gradient, copy
            table = torch.from_numpy(adamw_kernel.rows_of(*parts, block)).to(device)
            rates = torch.from_numpy(_rates(group, number)).to(device)
            present = (torch.arange(len(table), device=device) != 1).float()
            settings = table, present, rates, group["betas"], group["eps"], group["weight_decay"]
            for which in _WHOLE if half or number == 1 else _PARTS:
                adamw_kernel.step(*settings, half=half, copies=half, which=which)
        found, expected = (
            [weights, of["exp_avg"], of["exp_avg_sq"]]
            for weights, of in ((own, state), (theirs.detach(), optimizer.state[theirs]))
        )
        hold(found, expected, tolerance=_ROUNDING)
        if half:
            hold([copy], [own], tolerance=_HALF_ROUNDING)
