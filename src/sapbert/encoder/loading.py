"""Load a Hugging Face encoder and its tokenizer from a folder or from the hub.

A checkpoint may lack a tokenizer or some weights; transformers then continues with an empty vocabulary or
random numbers. Both are refused here: the vectors would look valid and mean nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import snapshot_download
from torch import nn
from transformers import (
    MODEL_MAPPING,
    AutoConfig,
    AutoModel,
    AutoTokenizer,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from sapbert.defaults import DEFAULT, OPEN_MINI
from sapbert.encoder.adapters import base_of, load_adapters
from sapbert.encoder.model_folder import (
    LENGTH_FILE,
    POOLING_FILE,
    SAPBERT_FILE,
    adapters_in,
    quiet_transformers,
    without_pooler,
)
from sapbert.errors import ArtifactError

_WEIGHTS = (
    "model.safetensors",
    "model.safetensors.index.json",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
)


def load_encoder(name_or_path: str | Path) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Load an encoder and its tokenizer from a folder or, by id, from the Hugging Face hub.

    Weights are converted to float32, and there is no pooler head. The model is on the CPU and in evaluation
    mode. For a folder with adapters, the base is loaded from the place that the adapters name.
    """
    source = _locate(name_or_path)
    adapters = adapters_in(source) if isinstance(source, Path) else None
    with quiet_transformers():
        model = _load_model(source) if adapters is None else _load_adapted(source, adapters)
        tokenizer = _load_tokenizer(source)
    _check_fit(source, model, tokenizer)
    return model, tokenizer


def max_input_tokens(model: PreTrainedModel) -> int | None:
    """Return the longest input of the encoder in tokens, None if positions set no limit."""
    table = getattr(getattr(model, "embeddings", None), "position_embeddings", None)
    if isinstance(table, nn.Embedding):
        # RoBERTa models count positions from the one after the padding index.
        return table.num_embeddings - (0 if table.padding_idx is None else table.padding_idx + 1)
    limit: int | None = getattr(model.config, "max_position_embeddings", None)
    return limit


def _locate(name_or_path: str | Path) -> Path | str:
    """Return the folder, checked to contain a model, or the hub id."""
    if name_or_path in (DEFAULT, OPEN_MINI):
        raise ArtifactError(
            f"the bundled encoder {name_or_path} has no PyTorch weights; "
            f"write those of the transformer first: sapbert export {OPEN_MINI} --format huggingface -o FOLDER"
        )
    path = Path(name_or_path).expanduser()
    if not path.exists():
        text = str(name_or_path)
        if isinstance(name_or_path, str) and text.count("/") <= 1 and not text.startswith(("/", ".", "~")):
            return text
        raise ArtifactError(f"{path}: no such folder")
    if not path.is_dir():
        raise ArtifactError(f"{path} is a file, expected the folder of a Hugging Face model")
    if adapters_in(path) is not None:
        return path
    if not (path / "config.json").is_file():
        raise ArtifactError(f"{path}: not a Hugging Face model: no config.json")
    if not any((path / name).is_file() for name in _WEIGHTS):
        raise ArtifactError(f"{path}: no weights: expected {_WEIGHTS[0]} or {_WEIGHTS[2]}")
    return path


def settings_folder(name_or_path: str | Path) -> Path:
    """Return the folder with the model's settings (pooling, length), downloaded from the hub if needed."""
    source = _locate(name_or_path)
    if isinstance(source, Path):
        return source
    return Path(snapshot_download(source, allow_patterns=[SAPBERT_FILE, POOLING_FILE, LENGTH_FILE]))


def _load_config(source: Path | str) -> PreTrainedConfig:
    try:
        config: PreTrainedConfig = AutoConfig.from_pretrained(source, trust_remote_code=False)
    except (OSError, ValueError, KeyError) as error:
        if isinstance(source, str):
            raise ArtifactError(
                f"{source}: no such folder, and no such model on the Hugging Face hub (or it is unreachable)"
            ) from error
        raise ArtifactError(f"{source}: config.json is damaged or has an unknown model type") from error
    if config.is_encoder_decoder or type(config) not in MODEL_MAPPING:
        raise ArtifactError(f"{source}: a {config.model_type} model is not an encoder")
    return config


def model_class(config: PreTrainedConfig) -> Callable[..., object]:
    """Return the model class of a configuration."""
    mapped: Any = MODEL_MAPPING[type(config)]
    model: Callable[..., object] = mapped[0] if isinstance(mapped, tuple) else mapped
    return model


def _load_adapted(source: Path | str, adapters: Path) -> PreTrainedModel:
    base = base_of(adapters)
    try:
        model = _load_model(_locate(base))
    except ArtifactError as error:
        raise ArtifactError(f"{source} has only adapters, and their base is missing: {error}") from error
    load_adapters(model, adapters)
    return model


def _load_model(source: Path | str) -> PreTrainedModel:
    config = _load_config(source)
    options = without_pooler(model_class(config))
    try:
        model, report = AutoModel.from_pretrained(
            source,
            config=config,
            dtype=torch.float32,
            trust_remote_code=False,
            output_loading_info=True,
            **options,
        )
    except Exception as error:  # a damaged pickle may raise anything
        raise ArtifactError(
            f"{source}: the weights are missing, damaged or do not match config.json"
        ) from error
    missing = sorted(report["missing_keys"])
    if missing:
        raise ArtifactError(f"{source}: {len(missing)} weights are missing, such as {missing[0]}")
    loaded: PreTrainedModel = model
    return loaded


def _load_tokenizer(source: Path | str) -> PreTrainedTokenizerBase:
    try:
        tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(source, trust_remote_code=False)
    except (OSError, ValueError, ImportError) as error:
        raise ArtifactError(f"{source}: no readable tokenizer (tokenizer.json)") from error
    # Without its files, transformers creates a vocabulary of special tokens only.
    if len(tokenizer) <= len(tokenizer.all_special_ids):
        raise ArtifactError(f"{source}: no tokenizer: expected tokenizer.json or a vocabulary file")
    return tokenizer


def _check_fit(source: Path | str, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> None:
    if tokenizer.pad_token_id is None:
        raise ArtifactError(f"{source}: the tokenizer has no padding token; is this an encoder?")
    table = model.get_input_embeddings()
    highest = max(tokenizer.get_vocab().values())
    if isinstance(table, nn.Embedding) and highest >= table.num_embeddings:
        raise ArtifactError(
            f"{source}: the tokenizer has token {highest}, the encoder only {table.num_embeddings} tokens; "
            "do they belong to the same model?"
        )
