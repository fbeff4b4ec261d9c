"""AdamW updates inside a CUDA graph, from bfloat16 gradients to bfloat16 copies of the weights in one pass.

The learning rate and state are those of a `torch.optim.AdamW`, whose tensors are changed in place, so that
its checkpoints stay valid.
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
from sapbert.gpu.transfer import pinned
from sapbert.gpu.verify import check_close

_CHECKED_SIZE = 4112
"""Size of the parameter in the check: more than one program handles, and not a multiple of that."""
_ALL: tuple[adamw_kernel.Rows, ...] = ("all",)
_IN_TWO_PARTS: tuple[adamw_kernel.Rows, ...] = ("absent", "present")
_TOLERANCE, _COPY_TOLERANCE = 1e-5, 2.0**-7
"""Relative error by norm, of updated weights and of their bfloat16 copies."""


class Tables(NamedTuple):
    """Addresses of parameters, their state and their gradients, one row per program of the kernel."""

    layers: Tensor
    """All layers, one after the other; these have bfloat16 copies."""
    words: Tensor
    """Word embeddings, several words per row."""
    others: Tensor


class FusedAdamW:
    """Updates the parameters of a `RowEncoder` as AdamW does.

    Each part is updated as soon as its gradients are computed. Most words occur in no name of a batch; they
    have no gradient, so they are updated before any gradient is computed.
    """

    def __init__(self, optimizer: torch.optim.Optimizer, encode: RowEncoder) -> None:
        """Check the kernel on this device, and create the optimizer state that does not exist yet."""
        if type(optimizer) is not torch.optim.AdamW or len(optimizer.param_groups) > 1:
            raise ValueError("only AdamW with one parameter group is supported")
        (self._group,) = optimizer.param_groups
        self._encode, self._states = encode, optimizer.state
        self._parameters = list(encode.model.parameters())
        device = self._parameters[0].device
        # This also compiles the kernel, which cannot be done during the capture of a graph.
        _check_kernel(device)
        for parameter in self._parameters:
            if not self._states[parameter]:
                self._states[parameter] = _initial_state(parameter)
        self._steps = [self._states[parameter]["step"] for parameter in self._parameters]
        self._done = int(self._steps[0])
        self._rates = torch.ones(3, device=device)
        self._words: Tensor = encode.model.get_submodule("embeddings").get_parameter("word_embeddings.weight")
        self._words_per_row = adamw_kernel.BLOCK // self._words.shape[1]
        if not self._words_per_row:
            raise ValueError(
                f"word embeddings of {self._words.shape[1]} dimensions exceed {adamw_kernel.BLOCK}"
            )
        self._present = torch.zeros(len(self._words) // self._words_per_row + 1, device=device)
        # Raises if the kernel cannot handle a parameter. Gradients have the memory layout of the leaves.
        self.fill(self.tables(), self._encode.leaves)

    def tables(self) -> Tables:
        """Allocate tables; each graph needs its own, as each has its own gradients."""
        rows = [0, 0, 0]
        for parameter, _, copy in self._encode.trained(self._encode.leaves):
            block = self._block_size(parameter)
            rows[self._table_index(parameter, copy)] += adamw_kernel.programs(parameter.numel(), block)
        return Tables(
            *(self._rates.new_zeros(count, adamw_kernel.COLUMNS, dtype=torch.int64) for count in rows)
        )

    def fill(self, tables: Tables, leaf_gradients: Sequence[Tensor]) -> None:
        """Write the addresses of the gradients of the encoder's leaves, and of all else, to `tables`."""
        rows: tuple[list[NDArray[np.int64]], ...] = ([], [], [])
        for parameter, gradient, copy in self._encode.trained(leaf_gradients):
            state = self._states[parameter]
            parts = (parameter.detach(), state["exp_avg"], state["exp_avg_sq"], gradient)
            target = gradient if copy is None else copy
            addresses = adamw_kernel.table_rows(*parts, target, self._block_size(parameter))
            rows[self._table_index(parameter, copy)].append(addresses)
        for table, every in zip(tables, rows, strict=True):
            table.copy_(torch.from_numpy(np.concatenate(every)))

    def _table_index(self, parameter: Tensor, copy: Tensor | None) -> int:
        return 0 if copy is not None else 1 if parameter is self._words else 2

    def _block_size(self, parameter: Tensor) -> int:
        """Return how many numbers a program handles: whole words of the word embeddings."""
        if parameter is self._words:
            return self._words_per_row * parameter.shape[1]
        return adamw_kernel.BLOCK

    def begin(self) -> None:
        """Copy learning rate and bias corrections of the next step to the device."""
        self._done += 1
        self._rates.copy_(pinned(_rates(self._group, self._done), self._rates.device), non_blocking=True)

    def update_absent_words(self, tables: Tables, ids: Tensor) -> None:
        """Update the words that are not among the token `ids`."""
        self._present.zero_().index_fill_(0, ids.long() // self._words_per_row, 1)
        self._update(tables.words, rows="absent")

    def update_layer(self, tables: Tables, number: int) -> None:
        """Update one layer; all layers have equally many parameters."""
        half = self._encode.dtype == torch.bfloat16
        self._update(tables.layers.chunk(self._encode.layers)[number], half=half, copies=True)

    def update_rest(self, tables: Tables) -> None:
        """Update everything else and count the step."""
        torch._foreach_add_(self._steps, 1)
        self._update(tables.words, rows="present")
        self._update(tables.others)

    def _update(
        self,
        table: Tensor,
        *,
        half: bool = False,
        copies: bool = False,
        rows: adamw_kernel.Rows = "all",
    ) -> None:
        group = self._group
        settings = self._present, self._rates, group["betas"], group["eps"], group["weight_decay"]
        adamw_kernel.update(table, *settings, half=half, copies=copies, rows=rows)


def _initial_state(parameter: Tensor) -> dict[str, Tensor]:
    """Return the state AdamW gives a parameter before its first step."""
    return {
        "step": torch.zeros((), device=parameter.device),
        "exp_avg": torch.zeros_like(parameter),
        "exp_avg_sq": torch.zeros_like(parameter),
    }


def _rates(group: Mapping[str, Any], number: int) -> NDArray[np.float32]:
    """Return the `rates` argument of `adamw_kernel.update` for step `number`, counted from 1."""
    first, second = (1 - beta**number for beta in group["betas"])
    return np.array([group["lr"], first, second**0.5], np.float32)


def _check_kernel(device: torch.device) -> None:
    """Update small tensors, with and without copies, and compare with torch's AdamW."""
    rng = torch.Generator().manual_seed(0)
    block = adamw_kernel.BLOCK
    for half in (True, False):
        dtype = torch.bfloat16 if half else torch.float32
        weights = torch.randn(_CHECKED_SIZE, generator=rng).to(device)
        reference = weights.clone().requires_grad_()
        optimizer = torch.optim.AdamW([reference], lr=0.1, weight_decay=0.1, fused=True)
        group, state, copy = optimizer.param_groups[0], _initial_state(weights), weights.to(dtype)
        for number in (1, 2):
            gradient = torch.randn(_CHECKED_SIZE, generator=rng).to(device, dtype)
            gradient[block : 2 * block] *= half
            reference.grad = gradient.float()
            optimizer.step()
            parts = weights, state["exp_avg"], state["exp_avg_sq"], gradient, copy
            table = torch.from_numpy(adamw_kernel.table_rows(*parts, block)).to(device)
            rates = torch.from_numpy(_rates(group, number)).to(device)
            present = (torch.arange(len(table), device=device) != 1).float()
            settings = table, present, rates, group["betas"], group["eps"], group["weight_decay"]
            for rows in _ALL if half or number == 1 else _IN_TWO_PARTS:
                adamw_kernel.update(*settings, half=half, copies=half, rows=rows)
        actual, expected = (
            [values, of["exp_avg"], of["exp_avg_sq"]]
            for values, of in ((weights, state), (reference.detach(), optimizer.state[reference]))
        )
        check_close(actual, expected, tolerance=_TOLERANCE)
        if half:
            check_close([copy], [weights], tolerance=_COPY_TOLERANCE)
