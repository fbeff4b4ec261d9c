"""Open any encoder by name: `default`, `open-mini`, an exported or flash encoder, or a Hugging Face model.

Imports torch only for a model that is not exported, and ONNX Runtime only for one that needs it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from sapbert.artifacts import work_folder
from sapbert.defaults import resolve_default
from sapbert.encoder.exported import is_exported, read_exported
from sapbert.encoder.flash.encoder import FLASH, FlashEncoder
from sapbert.errors import ConfigError, SapbertError, needing

if TYPE_CHECKING:
    from sapbert.encoder.onnx import OnnxEncoder, Variant
    from sapbert.encoder.transformer import TransformerEncoder


def open_encoder(model: str) -> FlashEncoder | OnnxEncoder | TransformerEncoder:
    """Open an exported encoder without torch, and any other model with torch."""
    folder = resolve_default(model, "encoder")
    if is_exported(folder):
        return open_exported(folder)
    with needing("train"):
        from sapbert.encoder.transformer import TransformerEncoder
    return TransformerEncoder.open(model)


def open_exported(
    folder: Path, *, threads: int | None = None, variant: Variant | None = None
) -> FlashEncoder | OnnxEncoder:
    """Open a flash encoder, or one written by `sapbert export`, without torch."""
    if read_exported(folder).get("kind") == FLASH:
        if variant is not None:
            raise ConfigError(f"{folder}: a flash encoder has no variant {variant}")
        return FlashEncoder.open(folder, threads=threads)
    from sapbert.encoder.onnx import OnnxEncoder

    return OnnxEncoder.open(folder, threads=threads, variant=variant)


@contextmanager
def exported_folder(model: str, beside: Path) -> Iterator[Path]:
    """Yield the folder of an exported encoder; export the model to a temporary folder `beside` if needed."""
    folder = resolve_default(model, "encoder")
    if is_exported(folder):
        yield folder
        return
    try:
        from sapbert.encoder.onnx_export.export import export_model
    except ImportError as error:
        raise SapbertError(
            f"{model} was not written by `sapbert export`, and exporting it needs {error.name}: "
            "pip install 'sapbert[train]', or export it on another machine"
        ) from error
    with work_folder(beside) as place:
        export_model(model, place / "encoder")
        yield place / "encoder"
