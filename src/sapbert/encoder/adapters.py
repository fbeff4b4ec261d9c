"""Adapters: a few trained parameters inside a frozen base.

`add_adapters` builds the paper's variant: a Pfeiffer bottleneck after the feed-forward block of every layer
and one invertible adapter after the embeddings. In a layer with input x and feed-forward output h, the
bottleneck takes the layer's output and adds its correction before the base's LayerNorm:

    LayerNorm(x + h + up(relu(down(LayerNorm(x + h)))))

That needs only the LayerNorm's input and output, so adapters are forward hooks on the base's modules: no
module is replaced and no parameter renamed. Up-projections start at zero, so a new adapter model gives
exactly the vectors of its base. ModernBERT normalizes before its blocks; there, as in AdapterHub, the
bottleneck takes and corrects the sum x + h that leaves the layer.

A bottleneck is not linear, so it cannot be merged into the base, and the result is not an ordinary Hugging
Face model. It is stored as the name of the base and the folder of `save_adapters`.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import PreTrainedModel

from sapbert.artifacts import create, fingerprint_of, load_manifest
from sapbert.errors import ArtifactError, ConfigError

KIND = "adapter"
_WEIGHTS = "adapter.safetensors"
_CHILD = "adapter"
_NORM = re.compile(r"encoder\.layer\.\d+\.output\.LayerNorm")
_INVERTIBLE_REDUCTION = 2
_Hook = Callable[[nn.Module, tuple[Tensor, ...], Tensor], Tensor]


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterSettings:
    """Size of the adapters."""

    reduction: int = 16
    """Hidden size divided by bottleneck size; the paper uses 1 (13 % of the parameters) and 16 (1 %)."""

    def __post_init__(self) -> None:
        if self.reduction < 1:
            raise ConfigError(f"reduction is at least 1, got {self.reduction}; the paper uses 1 and 16")


class Bottleneck(nn.Module):
    """Down-projection, ReLU and up-projection; its output is zero until it is trained."""

    def __init__(self, width_in: int, width_out: int, *, reduction: int) -> None:
        super().__init__()
        self.reduction = reduction
        self.down = nn.Linear(width_in, width_in // reduction)
        self.up = nn.Linear(width_in // reduction, width_out)
        nn.init.normal_(self.down.weight, std=0.02)
        for zero in (self.down.bias, self.up.weight, self.up.bias):
            nn.init.zeros_(zero)

    def forward(self, hidden: Tensor) -> Tensor:
        """Return the correction to add.  # (..., width_in) -> (..., width_out)"""
        result: Tensor = self.up(torch.relu(self.down(hidden)))
        return result


class InvertibleAdapter(nn.Module):
    """NICE coupling: each half of a vector is shifted by a function of the other half."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.left = left = width // 2
        right = width - left
        self.shift_left = Bottleneck(right, left, reduction=_INVERTIBLE_REDUCTION)
        self.shift_right = Bottleneck(left, right, reduction=_INVERTIBLE_REDUCTION)

    def forward(self, hidden: Tensor) -> Tensor:
        """Shift the left half, then the right by the new left.  # (..., width)"""
        left, right = hidden[..., : self.left], hidden[..., self.left :]
        left = left + self.shift_left(right)
        return torch.cat((left, right + self.shift_right(left)), dim=-1)


def add_adapters(model: PreTrainedModel, settings: AdapterSettings, *, seed: int = 0) -> None:
    """Freeze `model` and add trainable adapters to it.

    Their parameters are part of `model.state_dict()`, named as the path of a base module followed by
    `.adapter`; the names of the base do not change.
    """
    layers, hook = _layers(model)
    if _adapter_weights(model):
        raise ValueError("this model has adapters already")
    width = int(model.config.hidden_size)
    if settings.reduction > width:
        raise ConfigError(f"reduction {settings.reduction} exceeds the {width} dimensions; use 16")
    model.requires_grad_(requires_grad=False)
    with _seeded(seed):
        _attach(model.get_submodule("embeddings"), InvertibleAdapter(width), _after_embeddings)
        for layer in layers:
            _attach(layer, Bottleneck(width, width, reduction=settings.reduction), hook)


def trainable_parameters(model: nn.Module) -> list[nn.Parameter]:
    """Return the parameters that an optimizer updates."""
    return [parameter for parameter in model.parameters() if parameter.requires_grad]


def count_parameters(model: nn.Module) -> tuple[int, int]:
    """Return the number of trained parameters (of the adapters, if any, else all) and those of the base."""
    adapters = sum(weight.numel() for weight in _adapter_weights(model).values())
    base = sum(parameter.numel() for parameter in model.parameters()) - adapters
    return adapters or base, base


def reduction_of(model: nn.Module) -> int | None:
    """Return the reduction of the adapters of `model`, None if it has no adapters."""
    for name, module in model.named_modules():
        if name.endswith(f".{_CHILD}") and isinstance(module, Bottleneck):
            return module.reduction
    return None


def save_adapters(model: PreTrainedModel, folder: Path, *, overwrite: bool = False) -> None:
    """Write the adapters of `model`, without its base, as an artifact that names the base."""
    weights = _adapter_weights(model)
    if not weights:
        raise ValueError("this model has no adapters")
    with create(folder, overwrite=overwrite) as draft:
        save_file(weights, draft.path / _WEIGHTS)
        draft.seal(
            KIND,
            settings={"reduction": reduction_of(model)},
            inputs={"base": {"name": _base_name(model), "fingerprint": _base_fingerprint(model)}},
            counts={"parameters": sum(weight.numel() for weight in weights.values())},
        )


def base_of(folder: Path) -> str:
    """Return the name of the base that the adapters at `folder` were trained on."""
    return str(load_manifest(folder, kind=KIND).inputs["base"]["name"])


def load_adapters(model: PreTrainedModel, folder: Path) -> None:
    """Freeze `model` and add the adapters at `folder`; it must be the base they were trained on.

    Load the base in the precision it was trained in, and convert afterwards.
    """
    manifest = load_manifest(folder, kind=KIND)
    trained_on, actual = manifest.inputs["base"]["fingerprint"], _base_fingerprint(model)
    if trained_on != actual:
        base = manifest.inputs["base"]["name"] or "a base without a name"
        raise ArtifactError(
            f"{folder} was trained on {base} ({trained_on}) and does not fit "
            f"{model.name_or_path or 'this base'} ({actual}); load the former, in the same precision"
        )
    add_adapters(model, AdapterSettings(**manifest.settings))
    weights = load_file(folder / _WEIGHTS)
    if weights.keys() != _adapter_weights(model).keys():
        raise ArtifactError(
            f"{folder} was written by sapbert {manifest.sapbert}, whose adapters have other parameters"
        )
    model.load_state_dict(weights, strict=False)


def _layers(model: PreTrainedModel) -> tuple[list[nn.Module], _Hook]:
    """Return the module of each layer that gets an adapter, and the hook that applies it."""
    config = model.config
    if config.model_type == "modernbert" and hasattr(model, "layers"):
        return list(model.get_submodule("layers").children()), _after_layer
    norms = [module for name, module in model.named_modules() if _NORM.fullmatch(name)]
    # ELECTRA's small models project their embeddings to a larger size before the first layer.
    widened = getattr(config, "embedding_size", config.hidden_size) != config.hidden_size
    if len(norms) != config.num_hidden_layers or widened or not hasattr(model, "embeddings"):
        raise ConfigError(
            f"adapters do not support {type(model).__name__}: use BERT, RoBERTa, XLM-R, MPNet or ModernBERT, "
            "loaded without a head (AutoModel), or train with LoRA"
        )
    return norms, _around_norm


def _attach(module: nn.Module, adapter: nn.Module, hook: _Hook) -> None:
    like = next(module.parameters())
    module.add_module(_CHILD, adapter.to(device=like.device, dtype=like.dtype))
    module.register_forward_hook(hook)


def _after_embeddings(module: nn.Module, _: tuple[Tensor, ...], output: Tensor) -> Tensor:
    result: Tensor = module.get_submodule(_CHILD)(output)
    return result


def _around_norm(module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> Tensor:
    result: Tensor = module.forward(inputs[0] + module.get_submodule(_CHILD)(output))
    return result


def _after_layer(module: nn.Module, _: tuple[Tensor, ...], output: Tensor) -> Tensor:
    result: Tensor = output + module.get_submodule(_CHILD)(output)
    return result


def _adapter_weights(model: nn.Module) -> dict[str, Tensor]:
    return {name: value for name, value in model.state_dict().items() if _CHILD in name.split(".")}


def _base_name(model: PreTrainedModel) -> str:
    """Return the name of the base, as an absolute path if it is a folder."""
    name = str(model.name_or_path)
    return os.path.abspath(name) if name and Path(name).is_dir() else name


def _base_fingerprint(model: nn.Module) -> str:
    """Digest of the base's weights without the pooler's, which many bases lack and get at random."""
    adapters = _adapter_weights(model)
    base = {name: value for name, value in model.named_parameters() if name not in adapters}
    return fingerprint_of(
        {name: _digest(value) for name, value in base.items() if not name.startswith("pooler.")}
    )


def _digest(parameter: Tensor) -> str:
    flat = parameter.detach().cpu().contiguous().flatten()
    return hashlib.sha256(flat.view(torch.uint8).numpy().data).hexdigest()


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """Seed torch's generator inside the block, and restore its state afterwards."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        yield
