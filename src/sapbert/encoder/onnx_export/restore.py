"""Convert an exported encoder back to a Hugging Face folder that can be trained.

An int8 ONNX file has a quarter of the size of a checkpoint and is all that has to be distributed: its
dequantized weights link as well as the integers, and training removes the rounding error. So the package
contains its weights only once.

Exporting transposes the matrices of linear layers, renames them and merges equal weights. Export therefore
writes a table with the place of each parameter in the graph, found by content. The rest of a model folder is
small.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import onnx
import torch
from numpy.typing import NDArray
from onnx.numpy_helper import to_array
from transformers import AutoConfig, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

from sapbert.artifacts import Manifest, create
from sapbert.encoder.adapters import reduction_of
from sapbert.encoder.loading import model_class
from sapbert.encoder.model_folder import quiet_transformers, save_model, without_pooler
from sapbert.encoder.onnx import GRAPHS, ORIGIN, TOKENIZER_FILE, OnnxEncoder, Variant, read_description
from sapbert.encoder.onnx_export.quantize import QUANTIZED, SCALE
from sapbert.encoder.transformer import TransformerEncoder
from sapbert.errors import ArtifactError

KIND = "model"
_WEIGHTS_FILE = "weights.json"
"""Name of each parameter → name of its tensor in the graph, and whether that is transposed."""
_CONFIG_FILE, _TOKENIZER_CONFIG_FILE = "config.json", "tokenizer_config.json"
_LOCAL_SETTINGS = ("_name_or_path", "name_or_path", "is_local", "local_files_only", "vocab_file")
_PROBES = ("fever", "heart attack", "acute myocardial infarction, 2nd type")
_MIN_COSINE = 0.95
"""Minimum cosine to the exported encoder; quantization gives about 0.995, an error gives anything."""
_CARD = """---
library_name: sentence-transformers
pipeline_tag: sentence-similarity
tags:
- sapbert
- biomedical
- entity-linking
---

# A biomedical name encoder

The encoder `{fingerprint}`, converted back from its exported form ({variant}) by `sapbert export --format
huggingface`. To continue training: `sapbert train PAIRS --base FOLDER`. It has the licence of the exported
encoder.
"""


def write_origin(encoder: TransformerEncoder, graph: onnx.ModelProto, folder: Path) -> None:
    """Write the files that a model folder needs besides weights, and the places of its weights in `graph`.

    Nothing is written for an encoder with adapters, whose folder has no weights except those of its adapters.
    """
    if reduction_of(encoder.model) is not None:
        return
    folder.mkdir()
    _write_json(folder / _WEIGHTS_FILE, _places(encoder.model, graph))
    with quiet_transformers(), TemporaryDirectory() as place:
        encoder.model.config.save_pretrained(place)
        encoder.tokenizer.save_pretrained(place)
        for name in (_CONFIG_FILE, _TOKENIZER_CONFIG_FILE):
            content = json.loads((Path(place) / name).read_text(encoding="utf-8"))
            kept = {key: value for key, value in content.items() if key not in _LOCAL_SETTINGS}
            _write_json(folder / name, kept)


def restore_model(source: Path, target: Path, *, overwrite: bool = False) -> Manifest:
    """Convert the exported encoder in `source` to a Hugging Face folder at `target`."""
    description = read_description(source)
    variant: Variant = "fp32" if GRAPHS["fp32"] in description.files else "int8"
    exported = OnnxEncoder.open(source, variant=variant)
    model, tokenizer = _untrained_model(source)
    _load_weights(model, onnx.load(source / GRAPHS[variant]), source)
    encoder = TransformerEncoder(
        model,
        tokenizer,
        pooling=exported.pooling,
        max_length=exported.max_length,
        sparse_weight=exported.sparse_weight,
    )
    _check(encoder, exported, source)
    with create(target, overwrite=overwrite) as draft:
        card = _CARD.format(fingerprint=exported.fingerprint, variant=variant)
        save_model(
            draft.path,
            model,
            tokenizer,
            pooling=encoder.pooling,
            max_length=encoder.max_length,
            card=card,
            sparse_weight=encoder.sparse_weight,
        )
        return draft.seal(
            KIND,
            fingerprint=encoder.fingerprint,
            settings={"pooling": encoder.pooling.value, "max_length": encoder.max_length},
            inputs={"encoder": {"fingerprint": exported.fingerprint}},
            counts={"dimension": encoder.dimension},
        )


def _untrained_model(source: Path) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Return the model with random weights, and its tokenizer."""
    if not (source / ORIGIN).is_dir():
        raise ArtifactError(
            f"{source} cannot be converted to a Hugging Face model: it was exported from an encoder with "
            "adapters, or by an older sapbert; export it again"
        )
    with quiet_transformers(), TemporaryDirectory() as place:
        for file in (source / ORIGIN / _CONFIG_FILE, source / ORIGIN / _TOKENIZER_CONFIG_FILE):
            shutil.copy(file, place)
        shutil.copy(source / TOKENIZER_FILE, place)
        config = AutoConfig.from_pretrained(place)
        tokenizer = AutoTokenizer.from_pretrained(place)
        kind = model_class(config)
        model: Any = kind(config, **without_pooler(kind))
    return model.eval(), tokenizer


def _places(model: PreTrainedModel, graph: onnx.ModelProto) -> dict[str, tuple[str, bool]]:
    """Find each parameter in a graph by its content, unchanged or transposed."""
    tensors = {_digest(to_array(tensor)): tensor.name for tensor in graph.graph.initializer}
    places = {}
    for name, parameter in model.named_parameters():
        values = parameter.detach().numpy()
        for transposed, digest in ((False, _digest(values)), (True, _digest(values.T))):
            if digest in tensors:
                places[name] = (tensors[digest], transposed)
                break
    return places


def _load_weights(model: PreTrainedModel, graph: onnx.ModelProto, source: Path) -> None:
    places = json.loads((source / ORIGIN / _WEIGHTS_FILE).read_text(encoding="utf-8"))
    tensors = {tensor.name: to_array(tensor) for tensor in graph.graph.initializer}
    for name, parameter in model.named_parameters():
        place, transposed = places.get(name, (None, False))
        weight = _weight(tensors, place)
        if weight is None or weight.size != parameter.numel():
            raise ArtifactError(
                f"{source} cannot be converted to a Hugging Face model: its graph has no weight {name}"
            )
        parameter.data = torch.from_numpy(np.array(weight.T if transposed else weight, np.float32, order="C"))


def _weight(tensors: Mapping[str, NDArray[Any]], name: str | None) -> NDArray[Any] | None:
    """Return a weight, dequantized if the graph is quantized; None if there is no such weight."""
    if f"{name}{QUANTIZED}" not in tensors:
        return None if name is None else tensors.get(name)
    floats: NDArray[np.float32] = tensors[f"{name}{QUANTIZED}"].astype(np.float32)
    floats *= tensors[f"{name}{SCALE}"]
    return floats


def _check(encoder: TransformerEncoder, exported: OnnxEncoder, source: Path) -> None:
    least = float((encoder.encode(_PROBES) * exported.encode(_PROBES)).sum(axis=1).min())
    if not least > _MIN_COSINE:
        raise ArtifactError(
            f"{source} cannot be converted to a Hugging Face model: vectors differ (cosine {least:.3f})"
        )


def _digest(array: NDArray[Any]) -> bytes:
    shape = str(array.shape).encode()
    return hashlib.sha256(shape + np.ascontiguousarray(array).tobytes()).digest()


def _write_json(file: Path, content: Any) -> None:
    file.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
