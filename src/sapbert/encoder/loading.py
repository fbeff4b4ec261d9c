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

from sapbert.encoder.adapters import base_of, load_adapters
from sapbert.encoder.model_folder import (
    LENGTH_FILE,
    OWN_FILE,
    POOLING_FILE,
    adapters_in,
    pooler_options,
    quiet,
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

    Weights are float32 whatever the checkpoint holds, and there is no pooler head. The model is on the CPU
    and in evaluation mode. Of a folder that holds adapters the base is loaded from where it was.
    """
    source = _locate(name_or_path)
    adapters = adapters_in(source) if isinstance(source, Path) else None
    with quiet():
        model = _load_model(source) if adapters is None else _load_adapted(source, adapters)
        tokenizer = _load_tokenizer(source)
    _check_fit(source, model, tokenizer)
    return model, tokenizer


def longest_input(model: PreTrainedModel) -> int | None:
    """Return how many tokens the encoder can read at once, None where positions set no limit."""
    table = getattr(getattr(model, "embeddings", None), "position_embeddings", None)
    if isinstance(table, nn.Embedding):
        # RoBERTa and its kin count positions from the one after the padding's.
        return table.num_embeddings - (0 if table.padding_idx is None else table.padding_idx + 1)
    limit: int | None = getattr(model.config, "max_position_embeddings", None)
    return limit


def _locate(name_or_path: str | Path) -> Path | str:
    """Return the folder, if it is one with a model in it, or the hub id."""
    path = Path(name_or_path).expanduser()
    if not path.exists():
        text = str(name_or_path)
        if isinstance(name_or_path, str) and text.count("/") <= 1 and not text.startswith(("/", ".", "~")):
            return text
        raise ArtifactError(f"{path}: no such folder")
    if not path.is_dir():
        raise ArtifactError(f"{path}: is a file, expected the folder of a Hugging Face model")
    if adapters_in(path) is not None:
        return path
    if not (path / "config.json").is_file():
        raise ArtifactError(f"{path}: no Hugging Face model: it has no config.json")
    if not any((path / name).is_file() for name in _WEIGHTS):
        raise ArtifactError(f"{path}: has no weights: expected {_WEIGHTS[0]} or {_WEIGHTS[2]}")
    return path


def settings_folder(name_or_path: str | Path) -> Path:
    """Return a folder with what a loaded model says of its use, fetched from the hub where need be."""
    source = _locate(name_or_path)
    if isinstance(source, Path):
        return source
    return Path(snapshot_download(source, allow_patterns=[OWN_FILE, POOLING_FILE, LENGTH_FILE]))


def _load_config(source: Path | str) -> PreTrainedConfig:
    try:
        config: PreTrainedConfig = AutoConfig.from_pretrained(source, trust_remote_code=False)
    except (OSError, ValueError, KeyError) as error:
        if isinstance(source, str):
            raise ArtifactError(
                f"{source}: no such folder, and no such model on the Hugging Face hub or no way to reach it"
            ) from error
        raise ArtifactError(f"{source}: config.json is damaged or of an unknown kind of model") from error
    if config.is_encoder_decoder or type(config) not in MODEL_MAPPING:
        raise ArtifactError(f"{source}: a {config.model_type} model is not an encoder")
    return config


def model_class(config: PreTrainedConfig) -> Callable[..., object]:
    """Return what makes an encoder of a configuration."""
    found: Any = MODEL_MAPPING[type(config)]
    chosen: Callable[..., object] = found[0] if isinstance(found, tuple) else found
    return chosen


def _load_adapted(source: Path | str, adapters: Path) -> PreTrainedModel:
    base = base_of(adapters)
    try:
        model = _load_model(_locate(base))
    except ArtifactError as error:
        raise ArtifactError(f"{source} holds adapters only, and their base is not there: {error}") from error
    load_adapters(model, adapters)
    return model


def _load_model(source: Path | str) -> PreTrainedModel:
    config = _load_config(source)
    options = pooler_options(model_class(config))
    try:
        model, report = AutoModel.from_pretrained(
            source,
            config=config,
            dtype=torch.float32,
            trust_remote_code=False,
            output_loading_info=True,
            **options,
        )
    except Exception as error:  # a damaged pickle fails in whatever way its bytes lead to
        raise ArtifactError(
            f"{source}: its weights are missing, damaged or do not fit its config.json"
        ) from error
    missing = sorted(report["missing_keys"])
    if missing:
        raise ArtifactError(f"{source}: lacks {len(missing)} of the encoder's weights, such as {missing[0]}")
    loaded: PreTrainedModel = model
    return loaded


def _load_tokenizer(source: Path | str) -> PreTrainedTokenizerBase:
    try:
        tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(source, trust_remote_code=False)
    except (OSError, ValueError, ImportError) as error:
        raise ArtifactError(f"{source}: has no tokenizer that can be read (tokenizer.json)") from error
    # Without its files transformers makes up a vocabulary of special tokens.
    if len(tokenizer) <= len(tokenizer.all_special_ids):
        raise ArtifactError(f"{source}: has no tokenizer: expected tokenizer.json or a vocabulary file")
    return tokenizer


def _check_fit(source: Path | str, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> None:
    if tokenizer.pad_token_id is None:
        raise ArtifactError(f"{source}: its tokenizer has no padding token, so it is not an encoder's")
    table = model.get_input_embeddings()
    highest = max(tokenizer.get_vocab().values())
    if isinstance(table, nn.Embedding) and highest >= table.num_embeddings:
        raise ArtifactError(
            f"{source}: the tokenizer has token {highest}, the encoder only {table.num_embeddings} tokens; "
            "are they of one model?"
        )
