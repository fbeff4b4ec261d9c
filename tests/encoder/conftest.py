"""Fixtures of the encoder tests: one torch thread, each tiny model exported once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from sapbert.tokens.pooling import Pooling
from tests.conftest import made_once

POOLINGS = {
    "bert": Pooling.CLS,
    "roberta": Pooling.MEAN,
    "mpnet": Pooling.MEAN_ALL,
    "xlm-roberta": Pooling.FIRST,
    "modernbert": Pooling.NO_SPECIAL,
}
"""Exporting takes seconds, so each model family is exported with one pooling only."""


class Exported(NamedTuple):
    """Folders of a tiny encoder: for torch, and exported."""

    model: Path
    onnx: Path


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> Iterator[None]:
    """Use one thread: tiny models run faster, and sums do not depend on the number of threads."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Exported]:
    """Export a model family with its pooling in `POOLINGS` and 60 tokens; tests must not change the files."""
    from sapbert.encoder.onnx_export.export import export_model
    from tests.encoder.tiny import FAMILIES

    @cache
    def export(family: str) -> Exported:
        def make(folder: Path) -> None:
            model = FAMILIES[family](folder / "model")
            export_model(model, folder / "onnx", pooling=POOLINGS[family], max_length=60)

        folder = made_once(tmp_path_factory, f"exported-{family}", make)
        return Exported(folder / "model", folder / "onnx")

    return export
