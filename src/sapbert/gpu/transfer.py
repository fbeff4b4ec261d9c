"""From the CPU's memory to a device, without waiting for what the device has to do before."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


def to_device(array: NDArray[np.generic], device: torch.device) -> Tensor:
    """Copy an array to a device."""
    return sendable(array, device).to(device, non_blocking=True)


def sendable(array: NDArray[np.generic], device: torch.device) -> Tensor:
    """Return an array as a tensor that can be copied to a device at any later time."""
    tensor = torch.from_numpy(array)
    if device.type != "cuda":
        return tensor
    pinned = torch.empty_like(tensor, pin_memory=True)
    # By numpy, as torch would wake all its threads for it, and wait for them where others keep cores busy.
    pinned.numpy()[...] = array
    return pinned
