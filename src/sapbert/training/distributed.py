"""Several processes, one objective: embeddings of all processes, gathered with gradient.

Under `torchrun` each process encodes its own names, and all compute the loss of the whole batch. Its
gradient must travel back to the process that encoded a name; gathering without it silently changes the
objective. Summed over processes, parameter gradients are then those of one process with the whole batch,
for every loss: some are means over pairs or triplets that cannot be split by process.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, distributed


def world() -> tuple[int, int]:
    """Return the rank of this process and the number of processes."""
    if distributed.is_initialized():
        return distributed.get_rank(), distributed.get_world_size()
    return 0, 1


@contextmanager
def joined(device: torch.device) -> Iterator[None]:
    """Join the other processes where `torchrun` started several."""
    if int(os.environ.get("WORLD_SIZE", "1")) == 1 or distributed.is_initialized():
        yield
        return
    # Tensors on the CPU, such as that of `any_process`, are then sent without waiting for the GPU.
    distributed.init_process_group("cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo")
    try:
        yield
    finally:
        distributed.destroy_process_group()


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, own: Tensor) -> Tensor:
        rank, processes = world()
        ctx.own = slice(rank * len(own), (rank + 1) * len(own))
        everyone = [torch.empty_like(own) for _ in range(processes)]
        distributed.all_gather(everyone, own.contiguous())
        return torch.cat(everyone)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        total = gradients[0].contiguous().clone()
        distributed.all_reduce(total)
        return total[ctx.own]


def gather(own: Tensor) -> Tensor:
    """The embeddings of all processes, in order of rank.  # (own, dim) -> (all, dim)"""
    gathered: Tensor = own if world()[1] == 1 else _Gather.apply(own)  # type: ignore[no-untyped-call]
    return gathered


def any_process(asked: bool) -> bool:  # noqa: FBT001 - a value, not a switch
    """Tell whether any process says yes, so that all do the same."""
    if world()[1] == 1:
        return asked
    flag = torch.tensor(int(asked))
    distributed.all_reduce(flag, op=distributed.ReduceOp.MAX)
    return bool(flag.item())


def wait_for_all() -> None:
    """Go on when every process is here."""
    if world()[1] > 1:
        distributed.barrier()


def local_device() -> torch.device:
    """The device of this process: a GPU of its own where there are any."""
    if not torch.cuda.is_available():
        return torch.device("cpu")
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
    torch.cuda.set_device(device)
    return device


def sum_gradients(parameters: Iterable[torch.nn.Parameter]) -> None:
    """Add up the gradients of all processes, in one message."""
    if world()[1] == 1:
        return
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    flat = torch.cat([gradient.reshape(-1) for gradient in gradients])
    distributed.all_reduce(flat)
    for gradient, total in zip(gradients, flat.split([g.numel() for g in gradients]), strict=True):
        gradient.copy_(total.view_as(gradient))
