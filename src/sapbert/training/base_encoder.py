"""Open the encoder that BioSyn or the reranker starts training from."""

from __future__ import annotations

import torch

from sapbert.encoder.adapters import reduction_of
from sapbert.encoder.transformer import TransformerEncoder
from sapbert.errors import ConfigError
from sapbert.tokens.pooling import Pooling
from sapbert.training.distributed import world
from sapbert.training.settings import BiosynSettings, RerankerSettings

DTYPES = {"fp32": None, "bf16": torch.bfloat16, "fp16": torch.float16}
"""Mixed-precision type by the setting `precision`."""


def open_base_encoder(
    base: str, settings: BiosynSettings | RerankerSettings, device: torch.device
) -> TransformerEncoder:
    """Open an encoder whose parameters are all trained, in one process.

    Self-alignment opens its base in its own code, which supports adapters and several processes.
    """
    if world()[1] > 1:
        raise ConfigError("this command trains in one process; start it without torchrun")
    encoder = TransformerEncoder.open(
        base,
        pooling=None if settings.pooling is None else Pooling(settings.pooling),
        max_length=settings.max_length,
        device=device,
        dtype=DTYPES[settings.precision] or torch.float32,
    )
    if reduction_of(encoder.model) is not None:
        raise ConfigError(
            f"{base} has adapters, which this command does not train; give an encoder without adapters"
        )
    return encoder
