"""How verbs open an encoder that the user names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sapbert.errors import MissingExtraError

if TYPE_CHECKING:
    from sapbert.protocols import Encoder


def open_encoder(model: str) -> Encoder:
    """Open what `sapbert export` wrote, or the default, without torch, and any other model with it."""
    from sapbert.defaults import chosen
    from sapbert.encoder.onnx import OnnxEncoder, is_exported

    folder = chosen(model, "encoder")
    if is_exported(folder):
        return OnnxEncoder.open(folder)
    try:
        from sapbert.encoder.transformer import TransformerEncoder
    except ImportError as error:
        raise MissingExtraError(error.name or "torch", "train") from error
    return TransformerEncoder.open(model)
