"""Train one batch with several processes: gather the embeddings of all processes, with gradient.

Under `torchrun` each process encodes its part of the names, and all compute the loss of the whole batch. The
gradient must flow back to the process that encoded a name; gathering without it silently changes the
objective. The sum of parameter gradients over processes then equals the gradient of one process with the
whole batch, for every loss: some losses are means over pairs or triplets that cannot be split by process.
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
def process_group(device: torch.device) -> Iterator[None]:
    """Join the process group if `torchrun` started several processes."""
    if int(os.environ.get("WORLD_SIZE", "1")) == 1 or distributed.is_initialized():
        yield
        return
    # With gloo for the CPU, the flag of `any_process` is sent without waiting for the GPU.
    distributed.init_process_group("cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo")
    try:
        yield
    finally:
        distributed.destroy_process_group()


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, local: Tensor) -> Tensor:
        rank, processes = world()
        ctx.local = slice(rank * len(local), (rank + 1) * len(local))
        parts = [torch.empty_like(local) for _ in range(processes)]
        distributed.all_gather(parts, local.contiguous())
        return torch.cat(parts)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        total = gradients[0].contiguous().clone()
        distributed.all_reduce(total)
        return total[ctx.local]


def gather(local: Tensor) -> Tensor:
    """Return the embeddings of all processes, in order of rank.  # (local, dim) -> (all, dim)"""
    gathered: Tensor = local if world()[1] == 1 else _Gather.apply(local)  # type: ignore[no-untyped-call]
    return gathered


def any_process(flag: bool) -> bool:  # noqa: FBT001 - a value, not a switch
    """Return whether the flag is set in any process, so that all processes do the same."""
    if world()[1] == 1:
        return flag
    total = torch.tensor(int(flag))
    distributed.all_reduce(total, op=distributed.ReduceOp.MAX)
    return bool(total.item())


def wait_for_all() -> None:
    """Wait until every process has called this."""
    if world()[1] > 1:
        distributed.barrier()


def local_device() -> torch.device:
    """Return the device of this process: its own GPU, or the CPU if there is no GPU."""
    if not torch.cuda.is_available():
        return torch.device("cpu")
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
    torch.cuda.set_device(device)
    return device


def sum_gradients(parameters: Iterable[torch.nn.Parameter]) -> None:
    """Sum the gradients of all processes, in one message."""
    if world()[1] == 1:
        return
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    flat = torch.cat([gradient.reshape(-1) for gradient in gradients])
    distributed.all_reduce(flat)
    for gradient, total in zip(gradients, flat.split([g.numel() for g in gradients]), strict=True):
        gradient.copy_(total.view_as(gradient))
