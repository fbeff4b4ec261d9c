"""Select which parameters of a base encoder are trained: all, bottleneck adapters, or LoRA updates."""

from __future__ import annotations

from transformers import PreTrainedModel

from sapbert.encoder.adapters import AdapterSettings, add_adapters, reduction_of
from sapbert.errors import ConfigError
from sapbert.training.alignment.lora import LoraSettings, add_lora
from sapbert.training.settings import TrainSettings


def adapt(model: PreTrainedModel, settings: TrainSettings) -> None:
    """Add the adapter of `settings` to `model` and freeze the rest; existing adapters are trained further."""
    reduction = reduction_of(model)
    if reduction is not None:
        if (settings.adapter, settings.reduction) != ("pfeiffer", reduction):
            raise ConfigError(
                f"the base has adapters with reduction {reduction}, and only these can be trained: "
                f"give --adapter pfeiffer --reduction {reduction}"
            )
    elif settings.adapter == "pfeiffer":
        add_adapters(model, AdapterSettings(reduction=settings.reduction), seed=settings.seed)
    elif settings.adapter == "lora":
        add_lora(model, LoraSettings(rank=settings.rank, alpha=settings.alpha), seed=settings.seed)
