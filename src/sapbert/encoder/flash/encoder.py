"""Encode names with tables: numpy only, tens of thousands of names per second and core.

The vector of a name is the sum of the table rows of its features (`encoder.flash.features`), divided by its
length. Features of a word are added once per batch, since words repeat, and the rows that a batch needs are
decoded once. Rows are added one position at a time: the first of all names, then the second, and so on; each
step is one copy and one addition of whole arrays. A vector
does not depend on the other names, nor on the machine: every addition happens in the same order.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from sapbert.artifacts import fingerprint_of
from sapbert.encoder.exported import check_files, checksum, read_exported
from sapbert.encoder.flash.features import Features, FeatureSpec, word_features
from sapbert.encoder.flash.product_codes import FILES, ProductCodes
from sapbert.encoder.model_folder import SAPBERT_FILE
from sapbert.errors import ArtifactError, ConfigError
from sapbert.tokens.batching import OnProgress, encode_distinct, usable_cores

FLASH: Final = "flash"
"""The kind of this encoder in `sapbert.json`."""
_WINDOW = 8_192
"""Names encoded at once by one thread: the more, the more often a word repeats."""
_PARALLEL = 1_024
"""Names from which several threads are used."""
_MAX_CHARACTERS = 1_024
"""Characters of a name that are encoded."""
_Mapping = Callable[
    [Callable[[list[str]], NDArray[np.float32]], Iterable[list[str]]], Iterable[NDArray[np.float32]]
]
"""`map`, or the same on several threads."""
_TINY = np.float32(1e-12)


@dataclass(frozen=True, slots=True, kw_only=True)
class FlashDescription:
    """The content of `sapbert.json` of a flash encoder."""

    dimension: int
    """Length of one vector."""
    features: Sequence[Mapping[str, Any]]
    """The tables of features, as `FeatureSpec.to_json` returns them."""
    files: Mapping[str, str]
    """Path inside the folder → SHA-256."""
    kind: str = FLASH


class FlashEncoder:
    """Encodes names as unit vectors; implements `protocols.Encoder`."""

    def __init__(
        self, folder: Path, description: FlashDescription, codes: ProductCodes, *, threads: int
    ) -> None:
        self._folder = folder
        self._description = description
        self._codes = codes
        self._threads = threads
        self._spec = FeatureSpec.from_json(description.features)

    @classmethod
    def open(cls, folder: Path | str, *, threads: int | None = None, verify: bool = True) -> FlashEncoder:
        """Open a flash encoder written by `sapbert flash`.

        `threads` defaults to the number of cores that this process may use. `verify` compares checksums.
        """
        if threads is not None and threads < 1:
            raise ConfigError(f"an encoder needs at least one thread, got {threads}")
        folder = Path(folder).expanduser()
        try:
            description = FlashDescription(**read_exported(folder))
            rows = FeatureSpec.from_json(description.features).rows
        except (ValueError, TypeError, LookupError) as error:
            raise ArtifactError(
                f"{folder / SAPBERT_FILE} is damaged: {error}; train the encoder again"
            ) from error
        check_files(folder, description.files, verify=verify)
        codes = ProductCodes.open(folder, rows=rows, dimension=description.dimension)
        return cls(folder, description, codes, threads=threads or usable_cores())

    @property
    def dimension(self) -> int:
        """Length of one vector."""
        return self._description.dimension

    @property
    def features(self) -> FeatureSpec:
        """The tables of features."""
        return self._spec

    @property
    def fingerprint(self) -> str:
        """Digest of the tables and of how names become features."""
        return fingerprint_of({**self._description.files, "features": json.dumps(self._spec.to_json())})

    @property
    def sparse_weight(self) -> float:
        """Weight of the n-gram score relative to the dense score: none is learned with this encoder."""
        return 0.0

    def table(self) -> NDArray[np.float32]:
        """Return all rows of the tables, to continue training.  # (rows, dimension)"""
        return self._codes.decode(np.arange(len(self._codes)))

    def copy_to(self, folder: Path) -> None:
        """Write the encoder to `folder`, such as inside an index."""
        folder.mkdir(parents=True, exist_ok=True)
        for name in self._description.files:
            shutil.copyfile(self._folder / name, folder / name)
        _write_description(folder, self._description)

    def encode(self, names: Sequence[str], *, on_progress: OnProgress | None = None) -> NDArray[np.float32]:
        """Return one unit vector per name, in the order given.  # (names, dimension)

        A name without known features, such as one of punctuation only, has the first unit vector.
        """
        if len(names) < _PARALLEL or self._threads == 1:
            return self._encode_distinct(names, map, _WINDOW, on_progress)
        window = min(_WINDOW, -(-len(names) // self._threads))
        with ThreadPoolExecutor(self._threads) as pool:
            return self._encode_distinct(names, pool.map, window, on_progress)

    def _encode_distinct(
        self, names: Sequence[str], mapping: _Mapping, window: int, on_progress: OnProgress | None
    ) -> NDArray[np.float32]:
        return encode_distinct(
            names,
            lambda windows: mapping(self._encode_window, windows),
            dimension=self.dimension,
            window=window,
            on_progress=on_progress,
        )

    def sums(self, names: Sequence[str]) -> NDArray[np.float32]:
        """Return the vectors of names before they are divided by their length.  # (names, dimension)"""
        found = word_features([name[:_MAX_CHARACTERS] for name in names], self._spec)
        words = self._sums(found.words)
        return sum_rows(words, found.places, found.offsets) + self._sums(found.pairs)

    def _sums(self, features: Features) -> NDArray[np.float32]:
        """Return the sums of table rows.  # (names or words, dimension)"""
        rows, places = np.unique(features.ids, return_inverse=True)
        return sum_rows(self._codes.decode(rows), places, features.offsets)

    def _encode_window(self, names: list[str]) -> NDArray[np.float32]:
        """Encode distinct names.  # (names, dimension)"""
        sums = self.sums(names)
        lengths = np.sqrt(np.einsum("ij,ij->i", sums, sums))
        if (empty := lengths < _TINY).any():
            sums[empty, 0], lengths[empty] = 1, 1
        sums /= lengths[:, np.newaxis]
        return sums


def sum_rows(
    rows: NDArray[np.float32], places: NDArray[np.int64], offsets: NDArray[np.int64]
) -> NDArray[np.float32]:
    """Return for each name the sum of `rows[places[start:stop]]`, from its offset to the next.

    # (names, dimension)
    """
    counts = np.diff(offsets)
    if len(counts) == 1:
        total: NDArray[np.float32] = rows[places].sum(axis=0, keepdims=True)
        return total
    longest_first = np.argsort(-counts, kind="stable")
    starts, counts = offsets[:-1][longest_first], counts[longest_first]
    sums = np.zeros((len(counts), rows.shape[1]), np.float32)
    copies = np.empty_like(sums)
    # For each position, the number of names that have a feature there.
    for position, names in enumerate(np.searchsorted(-counts, -np.arange(counts[0] if len(counts) else 0))):
        rows.take(places[starts[:names] + position], axis=0, out=copies[:names], mode="clip")
        sums[:names] += copies[:names]
    ordered = np.empty_like(sums)
    ordered[longest_first] = sums
    return ordered


def write_flash_encoder(folder: Path, spec: FeatureSpec, codes: ProductCodes) -> None:
    """Write the files of a flash encoder to `folder`."""
    if len(codes) != spec.rows:
        raise ConfigError(f"the features have {spec.rows} rows, the table has {len(codes)}")
    codes.save(folder)
    files = {name: checksum(folder / name) for name in FILES}
    description = FlashDescription(dimension=codes.dimension, features=spec.to_json(), files=files)
    _write_description(folder, description)


def _write_description(folder: Path, description: FlashDescription) -> None:
    text = json.dumps(asdict(description), indent=2)
    (folder / SAPBERT_FILE).write_text(text + "\n", encoding="utf-8")
