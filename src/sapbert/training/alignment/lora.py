"""LoRA with peft: a low-rank update of every linear map of a frozen base.

Updates are linear, so `merge_lora` adds them to the weights, and the trained encoder is an ordinary model.
The updates alone are a few MB; `save_lora` writes them separately, in peft's format.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import nn
from transformers import PreTrainedModel

from sapbert.errors import ConfigError, needing

_PREFIX = "base_model.model."
"""Prefix of weight names in peft's files."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoraSettings:
    """Rank and scale of the low-rank updates."""

    rank: int = 8
    """Rank of the update of each linear map."""
    alpha: int = 16
    """The update is scaled by alpha / rank."""

    def __post_init__(self) -> None:
        if self.rank < 1 or self.alpha < 1:
            raise ConfigError(
                f"rank and alpha must be at least 1, got rank {self.rank} and alpha {self.alpha}"
            )


def add_lora(model: PreTrainedModel, settings: LoraSettings, *, seed: int = 0) -> None:
    """Freeze `model` and add low-rank updates to every linear map of its layers, in place."""
    with needing("lora"):
        from peft import LoraConfig, inject_adapter_in_model
    # Not to the pooler: no pooling uses it, and weights without gradient break data parallelism.
    linear = [name for name, module in model.named_modules() if isinstance(module, nn.Linear)]
    targets = [name for name in linear if not name.startswith("pooler.")]
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        config = LoraConfig(r=settings.rank, lora_alpha=settings.alpha, target_modules=targets)
        inject_adapter_in_model(config, model)


def save_lora(model: PreTrainedModel, folder: Path) -> None:
    """Write the unmerged low-rank updates of `model` so that peft can add them to the base again."""
    from peft import get_peft_model_state_dict

    (config,) = model.peft_config.values()
    config.base_model_name_or_path = model.name_or_path
    config.inference_mode = True
    config.save_pretrained(folder)
    # By default peft would look up the base on the Hugging Face hub to decide about embeddings.
    weights = get_peft_model_state_dict(model, save_embedding_layers=False)
    named = {_PREFIX + name: weight.contiguous() for name, weight in weights.items()}
    save_file(named, folder / "adapter_model.safetensors", metadata={"format": "pt"})


def merge_lora(model: PreTrainedModel) -> None:
    """Add the low-rank updates to the weights; the result is an ordinary, trainable model."""
    from peft.tuners.tuners_utils import BaseTunerLayer

    updated = {name: part for name, part in model.named_modules() if isinstance(part, BaseTunerLayer)}
    if not updated:
        raise ValueError("this model has no LoRA updates")
    for name, part in updated.items():
        part.merge()
        model.set_submodule(name, part.get_base_layer())
    del model.peft_config
    model.requires_grad_(requires_grad=True)
