"""What of an encoder is trained: all of it, adapters put into it, or low-rank updates."""

from __future__ import annotations

from transformers import PreTrainedModel

from sapbert.encoder.adapters import AdapterSettings, add_adapters, reduction_of
from sapbert.errors import ConfigError
from sapbert.training.lora import LoraSettings, add_lora
from sapbert.training.settings import TrainSettings


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
