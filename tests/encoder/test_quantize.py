from __future__ import annotations

from itertools import pairwise

import numpy as np
import onnxruntime  # type: ignore[import-untyped]  # it has no types
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from onnx import ModelProto, NodeProto, TensorProto
from onnx.helper import make_graph, make_model, make_node, make_opsetid, make_tensor_value_info
from onnx.numpy_helper import from_array, to_array

from sapbert.encoder.onnx_export.quantize import quantize

Array = NDArray[np.float32]


def linear(*weights: Array) -> ModelProto:
    """Multiply one input by each weight."""
    nodes = [make_node("MatMul", ["x", f"w{i}"], [f"y{i}"]) for i in range(len(weights))]
    return model(nodes, {f"w{i}": weight for i, weight in enumerate(weights)}, TensorProto.FLOAT)


def model(nodes: list[NodeProto], weights: dict[str, Array], kind: int) -> ModelProto:
    outputs = [make_tensor_value_info(node.output[0], TensorProto.FLOAT, None) for node in nodes]
    inputs = [make_tensor_value_info("x", kind, None)]
    constants = [from_array(value, name) for name, value in weights.items()]
    graph = make_graph(nodes, "test", inputs, outputs, constants)
    return make_model(graph, opset_imports=[make_opsetid("", 20)], ir_version=10)


def run(graph: ModelProto, x: NDArray[np.generic]) -> list[Array]:
    session = onnxruntime.InferenceSession(graph.SerializeToString(), providers=["CPUExecutionProvider"])
    found: list[Array] = session.run(None, {"x": x})
    return found


def by_hand(x: Array, weight: Array) -> Array:
    """Round each row of `x` and each column of `weight` to 127 levels, and multiply.

    The level of a column is that of its largest weight or sum of two adjacent weights of the same sign.
    """
    result = np.zeros((len(x), weight.shape[1]), np.float32)
    for i, row in enumerate(x):
        for j, column in enumerate(weight.T):
            sums = [one + other for one, other in pairwise(column) if one * other > 0]
            a, b = np.abs(row).max() / 127, np.abs([*column, *sums]).max() / 127
            result[i, j] = a * b * (np.rint(row / a) * np.rint(column / b)).sum() if a and b else 0
    return result


def random(seed: int, *shape: int) -> Array:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


@given(st.integers(0, 10_000), st.integers(1, 5), st.integers(1, 40), st.integers(1, 9))
def test_a_product_is_that_of_rounded_rows_and_columns(
    seed: int, rows: int, inner: int, columns: int
) -> None:
    x, weight = random(seed, rows, inner), random(seed + 1, inner, columns)
    graph = linear(weight)
    quantize(graph)
    # A number halfway between two levels may be rounded to either.
    border = np.abs(x).max() * np.abs(weight).max() / 127 * 4
    np.testing.assert_allclose(run(graph, x)[0], by_hand(x, weight), atol=border)
    assert np.abs(run(graph, x)[0] - x @ weight).max() <= inner * border


def saturating(x: NDArray[np.uint8], weight: NDArray[np.int8]) -> NDArray[np.int64]:
    """Multiply as x86 CPUs without VNNI do: products of two adjacent rows are added in 16 bits."""
    products = x[:, :, None].astype(np.int64) * weight[None]
    pairs = products[:, ::2] + products[:, 1::2]
    sums: NDArray[np.int64] = np.clip(pairs, -(2**15), 2**15 - 1).sum(axis=1)
    return sums


@given(st.integers(0, 10_000), st.integers(1, 20), st.sampled_from([-1.0, 0.0, 1.0, 9.0]))
def test_products_do_not_saturate_on_any_cpu(seed: int, inner: int, shift: float) -> None:
    weight = random(seed, 2 * inner, 7) + np.float32(shift)
    graph = linear(weight)
    quantize(graph)
    (quantized,) = (to_array(each) for each in graph.graph.initializer if each.name == "w0_q")
    extreme = np.random.default_rng(seed).choice(np.array([0, 255], np.uint8), (9, 2 * inner))
    extreme[0] = 255

    assert np.array_equal(saturating(extreme, quantized), extreme.astype(np.int64) @ quantized)


def test_a_huge_row_does_not_change_the_precision_of_others() -> None:
    x, weight = random(0, 3, 16), random(1, 16, 8)
    graph = linear(weight)
    quantize(graph)
    alone = run(graph, x)[0]
    x[2] *= 1e6
    np.testing.assert_array_equal(run(graph, x)[0][:2], alone[:2])


def test_rows_and_columns_of_zeros_stay_zero() -> None:
    x, weight = random(0, 3, 16), random(1, 16, 8)
    x[1], weight[:, 5] = 0, 0
    graph = linear(weight)
    quantize(graph)
    found = run(graph, x)[0]
    assert not found[1].any()
    assert not found[:, 5].any()
    assert np.isfinite(found).all()


def test_an_input_shared_by_products_is_quantized_once() -> None:
    graph = linear(random(0, 16, 8), random(1, 16, 4), random(2, 16, 4))
    quantize(graph)
    found = [node.op_type for node in graph.graph.node]
    assert (found.count("QuantizeLinear"), found.count("MatMulIntegerToFloat")) == (1, 3)


@pytest.mark.parametrize(("rows", "smaller"), [(3_000, True), (20, False)])
def test_only_a_large_table_is_quantized(rows: int, *, smaller: bool) -> None:
    table, ids = random(0, rows, 64), np.array([[3, 1], [0, 19]])
    graph = model([make_node("Gather", ["table", "x"], ["y"])], {"table": table}, TensorProto.INT64)
    before = graph.ByteSize()
    quantize(graph)

    assert (graph.ByteSize() < before / 3) is smaller
    np.testing.assert_allclose(run(graph, ids)[0], table[ids], atol=np.abs(table).max() / 127)
