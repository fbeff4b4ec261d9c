"""Encode names with ONNX Runtime: no torch, a small install and a quick start.

The graph was optimized when it was exported and is run unchanged: ONNX Runtime's optimizer would fuse
additions and layer norms into one operation that takes four times as long on a CPU. Each batch is computed by
one thread: several threads in one batch would wait for each other at every operation.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from sapbert.artifacts import fingerprint_of
from sapbert.encoder.exported import check_files, read_exported
from sapbert.encoder.model_folder import SAPBERT_FILE
from sapbert.errors import ArtifactError, ConfigError
from sapbert.tokens.batching import (
    OnProgress,
    TokenRows,
    encode_distinct,
    plan_equal_length_batches,
    usable_cores,
)
from sapbert.tokens.pooling import Pooling
from sapbert.tokens.tokenizer import tokenize_names

# Since 1.31 ONNX Runtime records events in the user's cache folder and sends them. It reads this variable
# when it is imported; if another package has imported it before, the call below switches recording off.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
import onnxruntime  # type: ignore[import-untyped]  # it has no types

if hasattr(onnxruntime, "disable_telemetry_events"):
    onnxruntime.disable_telemetry_events()

Variant = Literal["fp32", "int8"]
GRAPHS: Mapping[Variant, str] = {"fp32": "onnx/model.onnx", "int8": "onnx/model_int8.onnx"}
WEIGHTS_SUFFIX = ".data"
"""Weights are in a file next to their graph, so that they are memory-mapped and may exceed two gigabytes."""
TOKENIZER_FILE = "tokenizer.json"
ORIGIN = "huggingface"
"""Folder with the files that `encoder.onnx_export.restore` needs besides weights; not used for encoding."""
_WINDOW = 8_192
"""Names tokenized and sorted together: enough to fill batches, few enough to report progress often."""
_BATCH_TOKENS = 512
"""Tokens per batch: the activations still fit in a core's cache; larger batches are slower."""
_ERRORS_ONLY = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Description:
    """The content of `sapbert.json` of an exported encoder."""

    pooling: Pooling
    max_length: int
    """Maximum tokens per name; the tokenizer is configured to truncate there."""
    dimension: int
    """Length of one vector."""
    pad_id: int
    """Padding token, for the pooling that needs names of one length."""
    variant: Variant
    """Default variant."""
    files: Mapping[str, str]
    """Path inside the folder → SHA-256, for the tokenizer and the files of each variant."""
    sparse_weight: float = 0.0
    """Weight of the n-gram score relative to the dense score, if it was learned with the encoder."""

    def of(self, variant: Variant) -> Description:
        """Return the description of one variant."""
        names = (TOKENIZER_FILE, *files_of(variant))
        return replace(self, variant=variant, files={name: self.files[name] for name in names})


def files_of(variant: Variant) -> tuple[str, str]:
    """Return the graph and the weights of a variant."""
    return GRAPHS[variant], GRAPHS[variant] + WEIGHTS_SUFFIX


def write_description(folder: Path, description: Description) -> None:
    """Write `sapbert.json`."""
    text = json.dumps(asdict(description), indent=2)
    (folder / SAPBERT_FILE).write_text(text + "\n", encoding="utf-8")


def read_description(folder: Path) -> Description:
    """Read `sapbert.json` of an exported encoder; other folders are refused."""
    content = read_exported(folder)
    try:
        return Description(**{**content, "pooling": Pooling(content["pooling"])})
    except (ValueError, TypeError, LookupError) as error:
        raise ArtifactError(
            f"{folder / SAPBERT_FILE} is damaged: {error}; export the encoder again"
        ) from error


class OnnxEncoder:
    """Encodes names as unit vectors; implements `protocols.Encoder`."""

    def __init__(
        self,
        folder: Path,
        description: Description,
        tokenizer: Tokenizer,
        session: onnxruntime.InferenceSession,
        *,
        threads: int,
    ) -> None:
        self._folder = folder
        self._description = description
        self._tokenizer = tokenizer
        self._session = session
        self._threads = threads
        self._inputs = [entry.name for entry in session.get_inputs()]

    @classmethod
    def open(
        cls,
        folder: Path | str,
        *,
        threads: int | None = None,
        variant: Variant | None = None,
        verify: bool = True,
    ) -> OnnxEncoder:
        """Open an encoder written by `sapbert export`.

        `threads` defaults to the number of cores that this process may use. `verify` compares checksums; turn
        it off only if they have just been compared.
        """
        if threads is not None and threads < 1:
            raise ConfigError(f"an encoder needs at least one thread, got {threads}")
        folder = Path(folder).expanduser()
        exported = read_description(folder)
        variant = variant or exported.variant
        if variant not in GRAPHS or GRAPHS[variant] not in exported.files:
            available = ", ".join(name for name, file in GRAPHS.items() if file in exported.files)
            raise ConfigError(f"{folder}: no variant {variant}; available: {available}")
        description = exported.of(variant)
        check_files(folder, description.files, verify=verify)
        tokenizer = Tokenizer.from_file(str(folder / TOKENIZER_FILE))
        session = _start_session(folder / GRAPHS[variant])
        return cls(folder, description, tokenizer, session, threads=threads or usable_cores())

    @property
    def dimension(self) -> int:
        """Length of one vector."""
        return self._description.dimension

    @property
    def variant(self) -> Variant:
        """Precision of the graph: fp32 or int8."""
        return self._description.variant

    @property
    def pooling(self) -> Pooling:
        """How token vectors are pooled into one vector per name."""
        return self._description.pooling

    @property
    def max_length(self) -> int:
        """Maximum tokens per name."""
        return self._description.max_length

    @property
    def sparse_weight(self) -> float:
        """Weight of the n-gram score relative to the dense score, if it was learned with the encoder."""
        return self._description.sparse_weight

    @property
    def fingerprint(self) -> str:
        """Digest of graph, weights and tokenizer, which includes the maximum length."""
        return fingerprint_of(self._description.files)

    def copy_to(self, folder: Path) -> None:
        """Write the files of this variant to `folder`, such as inside an index."""
        for name in self._description.files:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(self._folder / name, folder / name)
        if (self._folder / ORIGIN).is_dir():
            shutil.copytree(self._folder / ORIGIN, folder / ORIGIN, ignore=self._links_elsewhere)
        write_description(folder, self._description)

    def _links_elsewhere(self, folder: str, names: list[str]) -> list[str]:
        """Return the names of symbolic links out of the encoder, or out of its folder in the hub's cache."""
        here = self._folder.resolve()
        root = here.parents[1] if here.parent.name == "snapshots" else here
        return [name for name in names if not (Path(folder) / name).resolve().is_relative_to(root)]

    def encode(self, names: Sequence[str], *, on_progress: OnProgress | None = None) -> NDArray[np.float32]:
        """Return one unit vector per name, in the order given.  # (names, dimension)

        Repeated names are computed once; an empty name has a vector too. The vector of a name does not depend
        on the other names.
        """
        return encode_distinct(
            names,
            partial(map, self._encode_window),
            dimension=self.dimension,
            window=_WINDOW,
            on_progress=on_progress,
        )

    def _encode_window(self, names: list[str]) -> NDArray[np.float32]:
        """Encode distinct names.  # (names, dimension)"""
        tokens = tokenize_names(self._tokenizer, names)
        lengths = tokens.lengths
        if self.pooling is Pooling.MEAN_ALL:
            lengths = np.full_like(lengths, self.max_length)
        vectors = np.empty((len(names), self.dimension), np.float32)

        def encode(rows: NDArray[np.int64]) -> None:
            vectors[rows] = self._encode_batch(tokens, rows, width=int(lengths[rows[0]]))

        batches = plan_equal_length_batches(lengths, tokens=_BATCH_TOKENS)
        with ThreadPoolExecutor(self._threads) as pool:
            list(pool.map(encode, batches))
        return vectors

    def _encode_batch(self, tokens: TokenRows, rows: NDArray[np.int64], *, width: int) -> NDArray[np.float32]:
        batch = tokens.pad(rows, pad_id=self._description.pad_id, width=width)
        # Names of graph inputs; a graph has only those that its pooling needs.
        parts = {"ids": batch.ids, "attention": batch.attention, "special": batch.special}
        vectors: NDArray[np.float32] = self._session.run(None, {name: parts[name] for name in self._inputs})[
            0
        ]
        return vectors


def _start_session(graph: Path) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = _ERRORS_ONLY
    return onnxruntime.InferenceSession(str(graph), options, providers=["CPUExecutionProvider"])
