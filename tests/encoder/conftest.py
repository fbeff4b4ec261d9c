"""Keep the hub out of reach and torch to one thread."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

# Read when huggingface_hub is imported, which the test modules do after this.
os.environ["HF_HUB_OFFLINE"] = "1"


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> Iterator[None]:
    """Tiny models run faster on one thread, and their sums do not depend on how many there are."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
