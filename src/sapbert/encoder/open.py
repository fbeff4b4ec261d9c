"""Open any encoder by name: `default`, a folder written by `sapbert export`, or a Hugging Face model.

Imports torch only for a model that is not exported.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from sapbert.artifacts import work_folder
from sapbert.defaults import resolve_default
from sapbert.encoder.onnx import OnnxEncoder, is_exported
from sapbert.errors import SapbertError, needing

if TYPE_CHECKING:
    from sapbert.encoder.transformer import TransformerEncoder


def open_encoder(model: str) -> OnnxEncoder | TransformerEncoder:
    """Open an exported encoder with ONNX Runtime, and any other model with torch."""
    folder = resolve_default(model, "encoder")
    if is_exported(folder):
        return OnnxEncoder.open(folder)
    with needing("train"):
        from sapbert.encoder.transformer import TransformerEncoder
    return TransformerEncoder.open(model)


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
