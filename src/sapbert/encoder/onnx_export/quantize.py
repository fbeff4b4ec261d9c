"""Quantize an encoder's graph to 8-bit integers: a quarter of the size, and about twice the speed.

Each row of activations (one token) gets its own scale at run time, and each column of a weight its own scale
at export. ONNX Runtime's dynamic quantization is somewhat faster and links as well, but uses one scale per
batch: the vector of a name then depends on the other names, and a mention and the same name in an index had
a cosine of 0.99. Here they are equal. Weights are signed and activations unsigned, the combination that CPUs
multiply fastest. Weights are scaled so that no CPU saturates their products (`column_ranges`).

Only large parts are quantized: products with a constant matrix, and the table of token embeddings.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray
from onnx import ModelProto, NodeProto, TensorProto
from onnx.helper import make_node, make_opsetid
from onnx.numpy_helper import from_array, to_array

QUANTIZED, SCALE = "_q", "_scale"
"""Suffixes of the names of a quantized weight and of its scales."""
_MICROSOFT = "com.microsoft"
_LEVELS = 127
"""Largest magnitude of a quantized number."""
_ZERO_POINT = 128
"""Zero point: the unsigned byte that represents zero."""
_TINY = np.float32(1e-12)
"""Avoids dividing a row of zeros by zero."""
_SMALL_TABLE = 100_000
"""Smaller tables, such as position embeddings, are not quantized."""


def quantize(model: ModelProto) -> None:
    """Rewrite the graph of `model` in place."""
    _Rewriter(model).run()


class _Rewriter:
    """Rewrites all nodes in one pass; new nodes and constants replace the old ones at the end."""

    def __init__(self, model: ModelProto) -> None:
        self._model = model
        self._weights = {tensor.name: tensor for tensor in model.graph.initializer}
        self._nodes: list[NodeProto] = []
        self._rows: dict[str, tuple[str, str]] = {}
        """Quantized activations: name → names of their bytes and of the scales of their rows."""

    def run(self) -> None:
        self._constant("q_tiny", _TINY)
        self._constant("q_level", np.float32(1 / _LEVELS))
        self._constant("q_middle", np.uint8(_ZERO_POINT))
        self._constant("q_last", np.array([-1], np.int64))
        for node in self._model.graph.node:
            self._nodes.extend(self._rewrite(node))
        self._replace_content()

    def _rewrite(self, node: NodeProto) -> Iterator[NodeProto]:
        if node.op_type == "MatMul" and self._is_matrix(node.input[1]):
            yield from self._product(node)
        elif node.op_type == "Gather" and self._is_matrix(node.input[0], larger_than=_SMALL_TABLE):
            yield from self._lookup(node)
        else:
            yield node

    def _is_matrix(self, name: str, *, larger_than: int = 0) -> bool:
        tensor = self._weights.get(name)
        return (
            tensor is not None
            and tensor.data_type == TensorProto.FLOAT
            and len(tensor.dims) == 2
            and int(np.prod(tensor.dims)) > larger_than
        )

    def _product(self, node: NodeProto) -> Iterator[NodeProto]:
        activations, weight = node.input
        if activations not in self._rows:
            yield from self._quantize_rows(activations)
        data, scales = self._rows[activations]
        self._quantize_weight(weight, axis=0)
        raw = f"{node.output[0]}_q"
        parts = [data, f"{weight}{QUANTIZED}", "q_level", f"{weight}{SCALE}", "q_middle"]
        yield make_node("MatMulIntegerToFloat", parts, [raw], domain=_MICROSOFT)
        yield make_node("Mul", [raw, scales], [node.output[0]])

    def _quantize_rows(self, name: str) -> Iterator[NodeProto]:
        size, largest, scales, unit, data = (f"{name}_{part}" for part in ("abs", "max", "rows", "unit", "q"))
        yield make_node("Abs", [name], [size])
        yield make_node("ReduceMax", [size, "q_last"], [largest])
        yield make_node("Max", [largest, "q_tiny"], [scales])
        yield make_node("Div", [name, scales], [unit])
        yield make_node("QuantizeLinear", [unit, "q_level", "q_middle"], [data])
        self._rows[name] = data, scales

    def _lookup(self, node: NodeProto) -> Iterator[NodeProto]:
        table, ids = node.input
        self._quantize_weight(table, axis=1)
        data, wide, scales = (f"{node.output[0]}_{part}" for part in ("q", "wide", "scale"))
        yield make_node("Gather", [f"{table}{QUANTIZED}", ids], [data])
        yield make_node("Cast", [data], [wide], to=TensorProto.FLOAT)
        yield make_node("Gather", [f"{table}{SCALE}", ids], [scales])
        yield make_node("Mul", [wide, scales], [node.output[0]])

    def _quantize_weight(self, name: str, *, axis: int) -> None:
        """Give each column (axis 0) or row (axis 1) of a matrix its own scale."""
        if f"{name}{QUANTIZED}" in self._weights:
            return
        values: NDArray[np.float32] = to_array(self._weights[name])
        ranges = column_ranges(values) if axis == 0 else np.abs(values).max(axis=1, keepdims=True)
        scales = np.maximum(ranges, _TINY) / _LEVELS
        self._constant(f"{name}{QUANTIZED}", np.rint(values / scales).astype(np.int8))
        self._constant(f"{name}{SCALE}", scales[0] if axis == 0 else scales)

    def _constant(self, name: str, value: NDArray[np.generic] | np.generic) -> None:
        self._weights[name] = from_array(np.asarray(value), name)

    def _replace_content(self) -> None:
        graph = self._model.graph
        used = {name for node in self._nodes for name in node.input}
        kept = [tensor for name, tensor in self._weights.items() if name in used]
        del graph.node[:], graph.initializer[:]
        graph.node.extend(self._nodes)
        graph.initializer.extend(kept)
        if _MICROSOFT not in {opset.domain for opset in self._model.opset_import}:
            self._model.opset_import.append(make_opsetid(_MICROSOFT, 1))


def column_ranges(values: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return for each column the number that is quantized to `_LEVELS`.  # (1, columns)

    x86 CPUs without VNNI add the products of two adjacent rows in 16 bits. An activation is at most 255, so
    two weights of the same sign may sum to 128, which is 127 before rounding; a larger sum would saturate
    there, and vectors would differ between CPUs.
    """
    ranges: NDArray[np.float32] = np.abs(values).max(axis=0, keepdims=True)
    for part in (np.maximum(values, 0), np.maximum(-values, 0)):
        sums = part[1:] + part[:-1]
        ranges = np.maximum(ranges, sums.max(axis=0, keepdims=True, initial=0))
    return ranges
