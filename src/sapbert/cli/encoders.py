"""How commands open the encoder that the user names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sapbert.errors import needing

if TYPE_CHECKING:
    from sapbert.encoder.onnx import OnnxEncoder
    from sapbert.encoder.transformer import TransformerEncoder


def open_encoder(model: str) -> OnnxEncoder | TransformerEncoder:
    """Open an exported encoder or the default without torch, and any other model with torch."""
    from sapbert.defaults import resolve_default
    from sapbert.encoder.onnx import OnnxEncoder, is_exported

    folder = resolve_default(model, "encoder")
    if is_exported(folder):
        return OnnxEncoder.open(folder)
    with needing("train"):
        from sapbert.encoder.transformer import TransformerEncoder
    return TransformerEncoder.open(model)
