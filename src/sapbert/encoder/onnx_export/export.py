"""Export an encoder from torch to ONNX, as fp32 and int8, with all files needed to run without torch.

Attention is exported as one operation of ONNX Runtime: transformers gets an attention function that is traced
as this operation. Fusing attention afterwards means finding it among a dozen small nodes, and the tools that
do so follow changes of transformers years later or never. Models whose attention cannot be replaced, such as
MPNet with its relative positions, are traced unchanged.

Pooling and normalization are part of the graph. Names are encoded in batches of one length (`encoder.onnx`),
so the graph has neither padding nor mask.
"""

from __future__ import annotations

import logging
import shutil
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.masking_utils import eager_mask

from sapbert.artifacts import Manifest, create, load_manifest
from sapbert.encoder.cross_encoder import ENCODER, read_head, write_head
from sapbert.encoder.cross_encoder import KIND as RERANKER
from sapbert.encoder.exported import checksum, is_exported
from sapbert.encoder.model_folder import quiet_transformers
from sapbert.encoder.onnx import (
    GRAPHS,
    ORIGIN,
    TOKENIZER_FILE,
    WEIGHTS_SUFFIX,
    Description,
    OnnxEncoder,
    Variant,
    files_of,
    write_description,
)
from sapbert.encoder.onnx_export.quantize import quantize
from sapbert.encoder.onnx_export.restore import write_origin
from sapbert.encoder.transformer import TransformerEncoder
from sapbert.errors import ArtifactError
from sapbert.progress import Progress, no_progress
from sapbert.protocols import Encoder
from sapbert.tokens.batching import OnProgress
from sapbert.tokens.pooling import Pooling, pool

KIND = "encoder"
DEFAULT_VARIANT: Variant = "int8"
_OPSET = 20
"""The first opset with an operation for GELU."""
_ATTENTION = "sapbert-onnx"
_PROBES = (
    "",
    "fever",
    "heart attack",
    "acute myocardial infarction, 2nd type",
    "感冒",
    "chronic renal failure with fever " * 50,
)
_MIN_COSINE = 0.9999
"""Minimum cosine between a vector of torch and one of the graph."""
_EXTERNAL_BYTES = 1024
"""Constants of at least so many bytes go to the file of weights."""


Measure = Callable[[Encoder], Mapping[str, float]]
"""Returns the figures of an encoder on a benchmark."""


def export_model(
    source: str | Path,
    target: Path,
    *,
    pooling: Pooling | None = None,
    max_length: int | None = None,
    benchmarks: Mapping[str, Measure] | None = None,
    on_progress: Progress = no_progress,
    overwrite: bool = False,
) -> Manifest:
    """Write the encoder `source`, a folder or a Hugging Face id, to `target` as ONNX.

    `pooling` and `max_length` default to those of the model. Each of `benchmarks` measures both variants;
    the figures go to the manifest (`details`, "accuracy"): name → variant → figures.
    """
    encoder = TransformerEncoder.open(source, pooling=pooling, max_length=max_length, device="cpu")
    fingerprint = encoder.fingerprint
    with create(target, overwrite=overwrite) as draft:
        write_encoder(encoder, draft.path, source)
        accuracy = {
            name: _measure_variants(draft.path, name, measure, on_progress)
            for name, measure in (benchmarks or {}).items()
        }
        return draft.seal(
            KIND,
            settings={"pooling": encoder.pooling.value, "max_length": encoder.max_length},
            inputs={"model": {"name": str(source), "fingerprint": fingerprint}},
            counts={"dimension": encoder.dimension},
            details={"accuracy": accuracy},
        )


def export_reranker(source: Path, target: Path, *, overwrite: bool = False) -> Manifest:
    """Write the reranker in `source`, trained by `sapbert reranker`, to `target` with its encoder as ONNX."""
    trained = load_manifest(source, kind=RERANKER)
    if is_exported(source / ENCODER):
        raise ArtifactError(f"{source} is already exported")
    head = read_head(source)
    with create(target, overwrite=overwrite) as draft:
        (draft.path / ENCODER).mkdir()
        write_encoder(TransformerEncoder.open(source / ENCODER, device="cpu"), draft.path / ENCODER, source)
        write_head(draft.path, head)
        return draft.seal(
            RERANKER,
            settings=trained.settings,
            inputs={"reranker": {"name": str(source), "fingerprint": trained.fingerprint}},
            counts={"dimension": len(head.direction)},
            details=trained.details,
        )


def write_encoder(encoder: TransformerEncoder, folder: Path, source: str | Path) -> None:
    """Write an encoder to `folder` as ONNX; the model is changed and cannot be used afterwards.

    It is an error if the graph gives other vectors than torch, as it may for an untested kind of model.
    `source` is for messages.
    """
    truth = encoder.encode(_PROBES)
    _write_files(encoder, folder)
    vectors = OnnxEncoder.open(folder, variant="fp32", verify=False).encode(_PROBES)
    least = float((vectors * truth).sum(axis=1).min())
    if not least > _MIN_COSINE:
        raise ArtifactError(
            f"{source} cannot be exported: its ONNX graph gives other vectors than torch (cosine {least:.4f})"
        )


def _write_files(encoder: TransformerEncoder, folder: Path) -> None:
    _write_tokenizer(encoder, folder / TOKENIZER_FILE)
    graph = _trace(encoder)
    write_origin(encoder, graph, folder / ORIGIN)
    _write_graph(graph, folder / GRAPHS["fp32"])
    quantize(graph)
    _write_graph(graph, folder / GRAPHS["int8"])
    names = (TOKENIZER_FILE, *files_of("fp32"), *files_of("int8"))
    description = Description(
        pooling=encoder.pooling,
        max_length=encoder.max_length,
        dimension=encoder.dimension,
        pad_id=encoder.tokenizer.pad_token_id,
        variant=DEFAULT_VARIANT,
        files={name: checksum(folder / name) for name in names},
        sparse_weight=encoder.sparse_weight,
    )
    write_description(folder, description)


def _measure_variants(
    folder: Path, name: str, measure: Measure, on_progress: Progress
) -> dict[str, dict[str, float]]:
    """Return the figures of each variant of the exported encoder in `folder` on the benchmark `name`."""
    figures: dict[str, dict[str, float]] = {}
    for variant in GRAPHS:
        encoder = OnnxEncoder.open(folder, variant=variant, verify=False)
        figures[variant] = dict(
            measure(_ReportingEncoder(encoder, partial(on_progress, f"{name} {variant}")))
        )
    return figures


class _ReportingEncoder:
    """An encoder that reports progress; implements `protocols.Encoder`."""

    def __init__(self, encoder: OnnxEncoder, on_progress: OnProgress) -> None:
        self._encoder, self._on_progress = encoder, on_progress
        self.dimension, self.fingerprint = encoder.dimension, encoder.fingerprint

    def encode(self, names: Sequence[str]) -> NDArray[np.float32]:
        """Return one unit vector per name.  # (names, dimension)"""
        return self._encoder.encode(names, on_progress=self._on_progress)


class _Graph(nn.Module):
    """The computation of the ONNX file, from token ids to unit vectors."""

    def __init__(self, model: PreTrainedModel, pooling: Pooling) -> None:
        super().__init__()
        self.model = model
        # Without padding both means are equal, and this one needs no mask.
        self.pooling = Pooling.MEAN_ALL if pooling is Pooling.MEAN else pooling

    def forward(self, ids: Tensor, attention: Tensor | None = None, special: Tensor | None = None) -> Tensor:
        """Encode one batch; without `attention`, all tokens are attended to."""
        mask = None if attention is None else attention.long()
        hidden = self.model(input_ids=ids, attention_mask=mask).last_hidden_state
        if attention is None:
            attention = torch.ones_like(ids, dtype=torch.bool)
        if special is None:
            special = torch.zeros_like(ids, dtype=torch.bool)
        return nn.functional.normalize(pool(hidden, attention, special, self.pooling))


def _input_names(pooling: Pooling) -> tuple[str, ...]:
    if pooling is Pooling.MEAN_ALL:
        return ("ids", "attention")
    if pooling in (Pooling.FIRST, Pooling.NO_SPECIAL):
        return ("ids", "special")
    return ("ids",)


def _trace(encoder: TransformerEncoder) -> onnx.ModelProto:
    rows, width = 3, 7  # any sizes except 0 and 1, which would become constants
    ids = torch.full((rows, width), encoder.tokenizer.pad_token_id)
    parts = {
        "ids": ids,
        "attention": torch.ones(rows, width).bool(),
        "special": torch.zeros(rows, width).bool(),
    }
    inputs = {name: parts[name] for name in _input_names(encoder.pooling)}
    axes = {0: torch.export.Dim("batch"), 1: torch.export.Dim("length")}
    _fuse_attention(encoder.model)
    with _quiet_export():
        program = torch.onnx.export(
            _Graph(encoder.model, encoder.pooling).eval(),
            kwargs=inputs,
            dynamo=True,
            dynamic_shapes=dict.fromkeys(inputs, axes),
            input_names=list(inputs),
            output_names=["vectors"],
            opset_version=_OPSET,
            verbose=False,
        )
    if program is None:
        raise RuntimeError("torch.onnx.export returned no program")
    graph: onnx.ModelProto = program.model_proto
    _remove_metadata(graph)
    return graph


def _attend(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    **options: Any,
) -> tuple[Tensor, None]:
    """Trace attention as ONNX Runtime's operation.  # (rows, heads, tokens, head dimension)"""
    del module, options
    rows, heads, tokens, width = query.shape
    inputs: list[Tensor | None] = [
        part.transpose(1, 2).reshape(rows, tokens, heads * width) for part in (query, key, value)
    ]
    if attention_mask is not None:
        inputs += [None, None, attention_mask]
    mixed = torch.onnx.ops.symbolic(
        "com.microsoft::MultiHeadAttention",
        inputs,
        {"num_heads": heads, "scale": width**-0.5 if scaling is None else scaling},
        dtype=query.dtype,
        shape=(rows, tokens, heads * width),
        version=1,
    )
    return mixed.reshape(rows, tokens, heads, width), None


def _fuse_attention(model: PreTrainedModel) -> None:
    AttentionInterface.register(_ATTENTION, _attend)
    AttentionMaskInterface.register(_ATTENTION, eager_mask)
    with quiet_transformers():
        model.set_attn_implementation(_ATTENTION)


@contextmanager
def _quiet_export() -> Iterator[None]:
    """Silence the exporter's log messages and warnings."""
    log = logging.getLogger("torch.onnx")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        log.setLevel(level)


def _remove_metadata(graph: onnx.ModelProto) -> None:
    """Remove the metadata of tracing, which reveals paths of this machine and is larger than the graph."""
    del graph.metadata_props[:], graph.graph.metadata_props[:], graph.graph.value_info[:]
    for part in (*graph.graph.node, *graph.graph.initializer, *graph.graph.input, *graph.graph.output):
        del part.metadata_props[:]
        part.doc_string = ""


def _write_graph(graph: onnx.ModelProto, file: Path) -> None:
    file.parent.mkdir(exist_ok=True)
    weights = file.name + WEIGHTS_SUFFIX
    # Saving moves the tensors to the file; a second use of the graph needs them in memory again.
    onnx.save_model(graph, file, save_as_external_data=True, location=weights, size_threshold=_EXTERNAL_BYTES)
    onnx.load_external_data_for_model(graph, str(file.parent))
    shutil.copymode(file, file.with_name(weights))  # onnx makes it readable only for the owner


def _write_tokenizer(encoder: TransformerEncoder, file: Path) -> None:
    tokenizer = encoder.tokenizer
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        raise ArtifactError(
            f"{tokenizer.name_or_path}: the tokenizer is pure Python and cannot be exported; "
            "add a tokenizer.json to the folder"
        )
    backend.enable_truncation(encoder.max_length, direction=tokenizer.truncation_side)
    backend.no_padding()
    backend.save(str(file))
