"""Copy arrays from CPU memory to a device without waiting for the work queued on the device."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


def to_device(array: NDArray[np.generic], device: torch.device) -> Tensor:
    """Copy an array to a device."""
    return pinned(array, device).to(device, non_blocking=True)


def pinned(array: NDArray[np.generic], device: torch.device) -> Tensor:
    """Return an array as a CPU tensor, in pinned memory if `device` is a GPU, to be copied at any time."""
    tensor = torch.from_numpy(array)
    if device.type != "cuda":
        return tensor
    buffer = torch.empty_like(tensor, pin_memory=True)
    # By numpy: torch would wake all its threads, and wait for them if other work keeps the cores busy.
    buffer.numpy()[...] = array
    return buffer
