"""The table that is trained: random rows, or those of a flash encoder to continue from."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from sapbert.defaults import resolve_default
from sapbert.encoder.exported import is_exported, read_exported
from sapbert.encoder.flash.encoder import FLASH, FlashEncoder
from sapbert.encoder.flash.features import FeatureKind, FeatureSpec, FeatureTable, features
from sapbert.errors import ConfigError
from sapbert.training.settings import FlashSettings

_DEVIATION = 0.05
"""Standard deviation of random rows; only its ratio to the learning rate matters."""
_DEFAULT_DIMENSION = 256
_DEFAULT_FEATURES = ("word", "pair", "characters-4")
_LEAST_BITS, _MOST_BITS = 12, 17
"""Sizes of the default tables, as powers of 2."""
_NAMES_AT_ONCE = 8_192


class FlashTable(nn.Module):
    """The trained rows of all tables of features."""

    def __init__(self, rows: Tensor) -> None:
        super().__init__()
        self.rows = nn.Parameter(rows)


class Start(NamedTuple):
    """What training starts from."""

    spec: FeatureSpec
    rows: NDArray[np.float32]
    used: NDArray[np.bool_]
    """Rows that the base uses."""
    fingerprint: str | None
    """Of the base; None without one."""


def start_table(base: str | None, settings: FlashSettings, *, names: int) -> Start:
    """Return the table of `base`, with random values in its unused rows, or a random one.

    The size of a random one depends on the number of `names`, unless it is set.
    """
    if base is None:
        spec = feature_spec(settings.features or _default_features(names))
        rows = _random_rows(spec.rows, settings.dimension or _DEFAULT_DIMENSION, settings.seed)
        return Start(spec, rows, np.zeros(spec.rows, np.bool_), None)
    if settings.features or settings.dimension:
        raise ConfigError("features and dimension are those of the base; remove these settings or the base")
    folder = resolve_default(base, "encoder")
    if folder.is_dir() and not (is_exported(folder) and read_exported(folder).get("kind") == FLASH):
        raise ConfigError(f"{base} is not a flash encoder; give a folder written by `sapbert flash`")
    encoder = FlashEncoder.open(folder)
    rows = encoder.table()
    used: NDArray[np.bool_] = np.abs(rows).max(axis=1) > 0
    rows[~used] = _random_rows(len(rows), encoder.dimension, settings.seed)[~used]
    return Start(encoder.features, rows, used, encoder.fingerprint)


def _default_features(names: int) -> dict[str, int]:
    """Return tables with about as many rows as there are names, within limits."""
    bits = min(max(names.bit_length(), _LEAST_BITS), _MOST_BITS)
    return dict.fromkeys(_DEFAULT_FEATURES, bits)


def feature_spec(tables: Mapping[str, float]) -> FeatureSpec:
    """Make tables of features from names such as `word`, `pair` or `characters-4` and their size in bits."""
    return FeatureSpec(tuple(_feature_table(name, bits) for name, bits in tables.items()))


def _feature_table(name: str, bits: float) -> FeatureTable:
    kind, _, length = name.partition("-")
    if kind not in list(FeatureKind) or not (length or "0").isdecimal() or bits != int(bits):
        raise ConfigError(
            f"no table of features is called {name}={bits:g}; expected word, pair, characters-N or sounds-N, "
            "and the size of the table as a power of 2, such as characters-4=17"
        )
    return FeatureTable(FeatureKind(kind), int(bits), int(length or 0))


def _random_rows(rows: int, dimension: int, seed: int) -> NDArray[np.float32]:
    generator = np.random.default_rng(seed)
    values = generator.standard_normal((rows, dimension), np.float32)
    values *= _DEVIATION
    return values


class TableEncoder:
    """Encodes names with a table in training; implements `protocols.Encoder`."""

    def __init__(self, spec: FeatureSpec, rows: Tensor) -> None:
        self._spec, self._rows = spec, rows.detach()

    @property
    def dimension(self) -> int:
        """Length of one vector."""
        return self._rows.shape[1]

    @property
    def fingerprint(self) -> str:
        """Digest of the table."""
        return hashlib.sha256(self._rows.cpu().numpy().data).hexdigest()[:32]

    def encode(self, names: Sequence[str]) -> NDArray[np.float32]:
        """Return one unit vector per name, in the given order.  # (names, dimension)"""
        blocks = (names[start : start + _NAMES_AT_ONCE] for start in range(0, len(names), _NAMES_AT_ONCE))
        return np.concatenate([np.empty((0, self.dimension), np.float32), *map(self._encode, blocks)])

    def _encode(self, names: Sequence[str]) -> NDArray[np.float32]:
        ids, offsets = (
            torch.from_numpy(array).to(self._rows.device) for array in features(names, self._spec)
        )
        sums = functional.embedding_bag(ids.long(), self._rows, offsets, mode="sum", include_last_offset=True)
        vectors: NDArray[np.float32] = functional.normalize(sums).cpu().numpy()
        return vectors
