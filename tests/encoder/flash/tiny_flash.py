"""A small flash encoder with random tables."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from sapbert.encoder.flash.encoder import write_flash_encoder
from sapbert.encoder.flash.features import FeatureKind, FeatureSpec, FeatureTable
from sapbert.encoder.flash.product_codes import quantize_table

SPEC = FeatureSpec(
    (
        FeatureTable(FeatureKind.WORD, 8),
        FeatureTable(FeatureKind.PAIR, 6),
        FeatureTable(FeatureKind.CHARACTERS, 9, 4),
        FeatureTable(FeatureKind.SOUNDS, 7, 3),
    )
)


def write_tiny_flash(folder: Path, *, dimension: int = 16, seed: int = 0) -> None:
    table = np.random.default_rng(seed).standard_normal((SPEC.rows, dimension)).astype(np.float32)
    write_flash_encoder(folder, SPEC, quantize_table(table, 1))
