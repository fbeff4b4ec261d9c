"""Seed, save and replay the random generators of the CPU and of one GPU."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor


def seed_generators(seed: int, device: torch.device) -> None:
    """Seed the generators of the CPU and of `device`, as `torch.manual_seed` does.

    `torch.manual_seed` also seeds every other kind of device, which takes longer.
    """
    if device.type not in ("cpu", "cuda"):
        torch.manual_seed(seed)
        return
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        index = torch.cuda.current_device() if device.index is None else device.index
        torch.cuda.default_generators[index].manual_seed(seed)


def random_state(device: torch.device) -> list[Tensor]:
    """Return the state of the generators of the CPU and of `device`."""
    states = [torch.get_rng_state()]
    return [*states, torch.cuda.get_rng_state(device)] if device.type == "cuda" else states


@contextmanager
def replayed_random_state(states: list[Tensor], device: torch.device) -> Iterator[None]:
    """Draw from saved `states` inside the block, then restore the generators as they were before it."""
    before = random_state(device)
    _set_random_state(states, device)
    try:
        yield
    finally:
        _set_random_state(before, device)


def _set_random_state(states: list[Tensor], device: torch.device) -> None:
    torch.set_rng_state(states[0])
    if device.type == "cuda":
        torch.cuda.set_rng_state(states[1], device)
