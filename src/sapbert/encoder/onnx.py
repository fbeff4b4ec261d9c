"""Encode names with ONNX Runtime: no torch, a small install, and a quick start.

It opens only what `sapbert export` wrote. Many model folders on the hub carry an `onnx/` of their own, but
nobody says how its vectors are pooled or which weights are in it; so our folder lists the checksum of each
file in `sapbert.json`, and anything else is refused.

The graph was optimised when it was exported and is run as it is. ONNX Runtime's own optimiser would join
additions and layer norms into one operation that takes four times as long on a CPU. Cores share the work by
batches, each computed by one thread: inside a batch threads would wait for each other at every operation.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np
import onnxruntime  # type: ignore[import-untyped]  # it has no types
from numpy.typing import NDArray
from tokenizers import Tokenizer

from sapbert.artifacts import fingerprint_of
from sapbert.encoder.model_folder import OWN_FILE
from sapbert.errors import ArtifactError, ConfigError
from sapbert.tokens.batching import (
    OnProgress,
    TokenRows,
    encode_distinct,
    plan_equal_batches,
    usable_cores,
)
from sapbert.tokens.pooling import Pooling
from sapbert.tokens.tokenizer import split

Variant = Literal["fp32", "int8"]
GRAPHS: Mapping[Variant, str] = {"fp32": "onnx/model.onnx", "int8": "onnx/model_int8.onnx"}
WEIGHTS_SUFFIX = ".data"
"""Weights lie beside their graph, so that they are mapped into memory and may exceed two gigabytes."""
TOKENIZER_FILE = "tokenizer.json"
ORIGIN = "huggingface"
"""Folder with what `encoder.onnx_export.restore` needs beside weights; vectors do not depend on it."""
_WINDOW = 8_192
"""Names tokenized and sorted together: enough to fill batches, few enough to tell progress often."""
_BATCH_TOKENS = 512
"""What passes between two operations stays in a core's cache up to here; more is slower."""
_ERRORS_ONLY = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Description:
    """What `sapbert.json` says of an exported encoder."""

    pooling: Pooling
    max_length: int
    """Tokens of a name that count; the tokenizer is set to cut there."""
    dimension: int
    """Length of one vector."""
    pad_id: int
    """Token that fills up rows, where the pooling wants all of one length."""
    variant: Variant
    """The one to use unless told otherwise."""
    files: Mapping[str, str]
    """Path inside the folder → SHA-256, of the tokenizer and of each variant's files."""
    sparse_weight: float = 0.0
    """What spelling counts beside its vectors, where that was learned with it."""

    def of(self, variant: Variant) -> Description:
        """Return the same for one variant alone."""
        names = (TOKENIZER_FILE, *files_of(variant))
        return replace(self, variant=variant, files={name: self.files[name] for name in names})


def files_of(variant: Variant) -> tuple[str, str]:
    """Return the graph and the weights of a variant."""
    return GRAPHS[variant], GRAPHS[variant] + WEIGHTS_SUFFIX


def write_description(folder: Path, description: Description) -> None:
    """Write `sapbert.json`."""
    text = json.dumps(asdict(description), indent=2)
    (folder / OWN_FILE).write_text(text + "\n", encoding="utf-8")


def is_exported(folder: Path) -> bool:
    """Tell what `sapbert export` wrote from other model folders, of which some have an `onnx/` too."""
    file = folder / OWN_FILE
    try:
        return file.is_file() and "files" in json.loads(file.read_text(encoding="utf-8"))
    except ValueError:
        return True  # and opening it tells what is wrong


def read_description(folder: Path) -> Description:
    """Read `sapbert.json` of an exported encoder; a folder that is none is refused."""
    if not folder.is_dir():
        raise ArtifactError(f"{folder}: no such folder")
    file = folder / OWN_FILE
    try:
        content = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
        if "files" not in content:
            raise ArtifactError(
                f"{folder}: no encoder that `sapbert export` wrote; make one: sapbert export {folder} -o OUT"
            )
        return Description(**{**content, "pooling": Pooling(content["pooling"])})
    except (ValueError, TypeError, LookupError) as error:
        raise ArtifactError(f"{file} is damaged: {error}; export the encoder again") from error


def checksum(file: Path) -> str:
    """Return the SHA-256 of a file."""
    with open(file, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


class OnnxEncoder:
    """Turns names into unit vectors; fits `protocols.Encoder`."""

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
        """Open what `sapbert export` wrote.

        It computes on `threads` threads, by default one a core that this process may use. `verify` compares
        checksums; leave it out only where somebody else has just done so.
        """
        if threads is not None and threads < 1:
            raise ConfigError(f"an encoder needs at least one thread, got {threads}")
        folder = Path(folder).expanduser()
        whole = read_description(folder)
        chosen = variant or whole.variant
        if chosen not in GRAPHS or GRAPHS[chosen] not in whole.files:
            there = ", ".join(name for name, file in GRAPHS.items() if file in whole.files)
            raise ConfigError(f"{folder}: no variant {chosen}; there is {there}")
        description = whole.of(chosen)
        _check_files(folder, description, verify=verify)
        tokenizer = Tokenizer.from_file(str(folder / TOKENIZER_FILE))
        session = _start(folder / GRAPHS[chosen])
        return cls(folder, description, tokenizer, session, threads=threads or usable_cores())

    @property
    def dimension(self) -> int:
        """Length of one vector."""
        return self._description.dimension

    @property
    def variant(self) -> Variant:
        """How the encoder computes."""
        return self._description.variant

    @property
    def pooling(self) -> Pooling:
        """Which tokens make the vector of a name."""
        return self._description.pooling

    @property
    def max_length(self) -> int:
        """Tokens of a name that count."""
        return self._description.max_length

    @property
    def sparse_weight(self) -> float:
        """What spelling counts beside its vectors, where that was learned with it."""
        return self._description.sparse_weight

    @property
    def fingerprint(self) -> str:
        """Digest of graph, weights and tokenizer, which is set to cut names at the longest."""
        return fingerprint_of(self._description.files)

    def copy_to(self, folder: Path) -> None:
        """Write to `folder` what opening this variant needs, so that something else can carry it along."""
        for name in self._description.files:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(self._folder / name, folder / name)
        if (self._folder / ORIGIN).is_dir():
            shutil.copytree(self._folder / ORIGIN, folder / ORIGIN)
        write_description(folder, self._description)

    def encode(self, names: Sequence[str], *, on_progress: OnProgress | None = None) -> NDArray[np.float32]:
        """Return one unit vector a name, in the order given.  # (names, dimension)

        A name given several times is computed once; an empty name has a vector too. No vector depends on
        the names beside it.
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
        tokens = split(self._tokenizer, names)
        lengths = tokens.lengths
        if self.pooling is Pooling.MEAN_ALL:
            lengths = np.full_like(lengths, self.max_length)
        vectors = np.empty((len(names), self.dimension), np.float32)

        def encode(rows: NDArray[np.int64]) -> None:
            vectors[rows] = self._encode_batch(tokens, rows, width=int(lengths[rows[0]]))

        batches = plan_equal_batches(lengths, tokens=_BATCH_TOKENS)
        with ThreadPoolExecutor(self._threads) as pool:
            list(pool.map(encode, batches))
        return vectors

    def _encode_batch(self, tokens: TokenRows, rows: NDArray[np.int64], *, width: int) -> NDArray[np.float32]:
        batch = tokens.pad(rows, pad_id=self._description.pad_id, width=width)
        # Named as in the graph, which has those inputs that its pooling needs.
        parts = {"ids": batch.ids, "attention": batch.attention, "special": batch.special}
        vectors: NDArray[np.float32] = self._session.run(None, {name: parts[name] for name in self._inputs})[
            0
        ]
        return vectors


def _check_files(folder: Path, description: Description, *, verify: bool) -> None:
    for name, digest in description.files.items():
        if not (folder / name).is_file():
            raise ArtifactError(f"{folder} is damaged: {name} is missing; export the encoder again")
        if verify and checksum(folder / name) != digest:
            raise ArtifactError(
                f"{folder} is damaged: {name} does not match its checksum; export the encoder again"
            )


def _start(graph: Path) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = _ERRORS_ONLY
    return onnxruntime.InferenceSession(str(graph), options, providers=["CPUExecutionProvider"])
