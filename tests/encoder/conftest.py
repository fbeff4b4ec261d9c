"""Keep the hub out of reach and torch to one thread; export each tiny family once."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from sapbert.tokens.pooling import Pooling

# Read when huggingface_hub is imported, which the test modules do after this.
os.environ["HF_HUB_OFFLINE"] = "1"

POOLINGS = {
    "bert": Pooling.CLS,
    "roberta": Pooling.MEAN,
    "mpnet": Pooling.MEAN_ALL,
    "xlm-roberta": Pooling.FIRST,
    "modernbert": Pooling.NO_SPECIAL,
}
"""Exporting takes seconds, so each family shows one pooling."""


class Exported(NamedTuple):
    """A tiny encoder in torch, and in ONNX."""

    model: Path
    onnx: Path


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> Iterator[None]:
    """Tiny models run faster on one thread, and their sums do not depend on how many there are."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Exported]:
    """Export a family with its pooling of `POOLINGS` and 60 tokens; to be read only."""
    from sapbert.encoder.onnx_export.export import export_model
    from tests.encoder.tiny import FAMILIES

    @cache
    def export(family: str) -> Exported:
        folder = tmp_path_factory.mktemp(family)
        model = FAMILIES[family](folder / "model")
        export_model(model, folder / "onnx", pooling=POOLINGS[family], max_length=60)
        return Exported(model, folder / "onnx")

    return export
