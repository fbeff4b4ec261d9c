"""Adapters: few parameters inside a base that stays as it is.

`add_adapters` builds the paper's variant: a Pfeiffer bottleneck after the feed-forward block of every layer
and one invertible adapter after the embeddings. In a layer with input x and feed-forward output h the
bottleneck reads what the base would have passed on and corrects the sum below the base's own LayerNorm:

    LayerNorm(x + h + up(relu(down(LayerNorm(x + h)))))

That needs only the LayerNorm's input and output, so adapters hang on the base's modules as forward hooks: no
module is replaced and no parameter renamed. Up-projections start at zero, so a fresh adapter model gives
exactly the vectors of its base. ModernBERT normalises before its blocks; there, as AdapterHub does in such
layers, the bottleneck reads and corrects the sum x + h that leaves the layer.

A bottleneck is not linear, so it cannot be merged into the base, and what comes out is no ordinary Hugging
Face model. It travels as two things: the name of the base, and the folder of `save_adapters`.
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
    """How large the adapters are."""

    reduction: int = 16
    """Width of the encoder over width of a bottleneck; the paper's variants are 1 (13 %) and 16 (1 %)."""

    def __post_init__(self) -> None:
        if self.reduction < 1:
            raise ConfigError(f"reduction is at least 1, got {self.reduction}; the paper uses 1 and 16")


class Bottleneck(nn.Module):
    """Two linear maps through a narrow middle; zero until it is trained."""

    def __init__(self, width_in: int, width_out: int, *, reduction: int) -> None:
        super().__init__()
        self.reduction = reduction
        self.down = nn.Linear(width_in, width_in // reduction)
        self.up = nn.Linear(width_in // reduction, width_out)
        nn.init.normal_(self.down.weight, std=0.02)
        for zero in (self.down.bias, self.up.weight, self.up.bias):
            nn.init.zeros_(zero)

    def forward(self, hidden: Tensor) -> Tensor:
        """Return what is to be added.  # (..., width_in) -> (..., width_out)"""
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

    def inverse(self, hidden: Tensor) -> Tensor:
        """Undo `forward`; an encoder never does, a decoder over the same embeddings would.  # (..., width)"""
        left, right = hidden[..., : self.left], hidden[..., self.left :]
        right = right - self.shift_right(left)
        return torch.cat((left - self.shift_left(right), right), dim=-1)


def add_adapters(model: PreTrainedModel, settings: AdapterSettings, *, seed: int = 0) -> None:
    """Freeze `model` and put adapters into it, which alone will be trained.

    Their parameters are part of `model.state_dict()`, under names that end the path of a base module with
    `.adapter`; the names of the base do not change.
    """
    layers, hook = _layers(model)
    if _adapter_weights(model):
        raise ValueError("this model has adapters already")
    width = int(model.config.hidden_size)
    if settings.reduction > width:
        raise ConfigError(f"reduction {settings.reduction} leaves nothing of {width} dimensions; take 16")
    model.requires_grad_(requires_grad=False)
    with _seeded(seed):
        _attach(model.get_submodule("embeddings"), InvertibleAdapter(width), _after_embeddings)
        for layer in layers:
            _attach(layer, Bottleneck(width, width, reduction=settings.reduction), hook)


def trainable_parameters(model: nn.Module) -> list[nn.Parameter]:
    """Return the parameters an optimizer should see."""
    return [parameter for parameter in model.parameters() if parameter.requires_grad]


def count_parameters(model: nn.Module) -> tuple[int, int]:
    """Return how many parameters are trained, adapters or else all, and how many the base has."""
    adapters = sum(weight.numel() for weight in _adapter_weights(model).values())
    base = sum(parameter.numel() for parameter in model.parameters()) - adapters
    return adapters or base, base


def reduction_of(model: nn.Module) -> int | None:
    """Return the reduction of the adapters of `model`, None where it has none."""
    for name, module in model.named_modules():
        if name.endswith(f".{_CHILD}") and isinstance(module, Bottleneck):
            return module.reduction
    return None


def save_adapters(model: PreTrainedModel, folder: Path, *, overwrite: bool = False) -> None:
    """Write the adapters of `model`, without its base, as an artifact that knows its base."""
    weights = _adapter_weights(model)
    if not weights:
        raise ValueError("this model has no adapters")
    with create(folder, overwrite=overwrite) as draft:
        save_file(weights, draft.path / _WEIGHTS)
        draft.seal(
            KIND,
            settings={"reduction": reduction_of(model)},
            inputs={"base": {"name": _place(model), "fingerprint": _base_fingerprint(model)}},
            counts={"parameters": sum(weight.numel() for weight in weights.values())},
        )


def base_of(folder: Path) -> str:
    """Return the name of the base that the adapters at `folder` were trained on."""
    return str(load_manifest(folder, kind=KIND).inputs["base"]["name"])


def load_adapters(model: PreTrainedModel, folder: Path) -> None:
    """Freeze `model` and put the adapters at `folder` into it; it must be the base they were trained on.

    Load the base in the precision it was trained in, and convert afterwards.
    """
    manifest = load_manifest(folder, kind=KIND)
    trained_on, found = manifest.inputs["base"]["fingerprint"], _base_fingerprint(model)
    if trained_on != found:
        base = manifest.inputs["base"]["name"] or "a base without a name"
        raise ArtifactError(
            f"{folder} was trained on {base} ({trained_on}) and does not fit "
            f"{model.name_or_path or 'this base'} ({found}); load the first, in the same precision"
        )
    add_adapters(model, AdapterSettings(**manifest.settings))
    weights = load_file(folder / _WEIGHTS)
    if weights.keys() != _adapter_weights(model).keys():
        raise ArtifactError(
            f"{folder} was written by sapbert {manifest.sapbert}, whose adapters differ from ours"
        )
    model.load_state_dict(weights, strict=False)


def _layers(model: PreTrainedModel) -> tuple[list[nn.Module], _Hook]:
    """Find the module of each layer that carries its adapter, and the hook that applies it there."""
    config = model.config
    if config.model_type == "modernbert" and hasattr(model, "layers"):
        return list(model.get_submodule("layers").children()), _after_layer
    norms = [module for name, module in model.named_modules() if _NORM.fullmatch(name)]
    # ELECTRA's small models widen their embeddings on the way to the first layer.
    widened = getattr(config, "embedding_size", config.hidden_size) != config.hidden_size
    if len(norms) != config.num_hidden_layers or widened or not hasattr(model, "embeddings"):
        raise ConfigError(
            f"no place for adapters in {type(model).__name__}: BERT, RoBERTa, XLM-R, MPNet and ModernBERT "
            "have one, loaded without a head (AutoModel); LoRA works for others"
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


def _place(model: PreTrainedModel) -> str:
    """Say where the base is, in a way that holds from any working directory."""
    name = str(model.name_or_path)
    return os.path.abspath(name) if name and Path(name).is_dir() else name


def _base_fingerprint(model: nn.Module) -> str:
    """Identify the weights below the adapters; not the pooler's, which many bases lack and get at random."""
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
    """Draw from `seed` inside, and leave torch's own generator as if nothing had been drawn."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        yield
