"""What of an encoder is trained: all of it, adapters put into it, or low-rank updates."""

from __future__ import annotations

import torch
from transformers import PreTrainedModel

from sapbert.encoder.adapters import AdapterSettings, add_adapters, reduction_of
from sapbert.encoder.transformer import TransformerEncoder
from sapbert.errors import ConfigError
from sapbert.tokens.pooling import Pooling
from sapbert.training.alignment.lora import LoraSettings, add_lora
from sapbert.training.distributed import world
from sapbert.training.loop import DTYPES
from sapbert.training.settings import BiosynSettings, RerankerSettings, TrainSettings


def open_whole(
    base: str, settings: BiosynSettings | RerankerSettings, device: torch.device
) -> TransformerEncoder:
    """Open an encoder to be trained as a whole, in one process, as all but self-alignment do."""
    if world()[1] > 1:
        raise ConfigError("this trains in one process; start it without torchrun")
    encoder = TransformerEncoder.open(
        base,
        pooling=None if settings.pooling is None else Pooling(settings.pooling),
        max_length=settings.max_length,
        device=device,
        dtype=DTYPES[settings.precision] or torch.float32,
    )
    if reduction_of(encoder.model) is not None:
        raise ConfigError(f"{base} has adapters, which are not trained here; give an ordinary encoder")
    return encoder


def adapt(model: PreTrainedModel, settings: TrainSettings) -> None:
    """Put into `model` what is to be trained in its stead, and freeze the rest; adapters it has go on."""
    has = reduction_of(model)
    if has is not None:
        if (settings.adapter, settings.reduction) != ("pfeiffer", has):
            raise ConfigError(
                f"the base has adapters of reduction {has}, and only they can be trained: "
                f"give --adapter pfeiffer --reduction {has}"
            )
    elif settings.adapter == "pfeiffer":
        add_adapters(model, AdapterSettings(reduction=settings.reduction), seed=settings.seed)
    elif settings.adapter == "lora":
        add_lora(model, LoraSettings(rank=settings.rank, alpha=settings.alpha), seed=settings.seed)
