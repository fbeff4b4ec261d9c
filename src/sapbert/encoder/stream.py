"""Names to vectors on a GPU in a stream: threads prepare the next names while it computes those before.

From text to vector the GPU has the smaller part to do. A tokenizer runs on all cores and without Python's
lock, but what it found must be read name by name under it; two threads let one window be read while the next
is tokenised. Vectors set off for the CPU as soon as they are there, and are waited for one window later.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from sapbert.encoder.bert import RowEncoder, RowTensors
from sapbert.encoder.pooling import Pooling
from sapbert.encoder.rows import Rows
from sapbert.encoder.tokens import split
from sapbert.encoder.transfer import to_device

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_ROWS = 256
"""Rows computed at once: enough for all of a GPU, and little enough that a layer stays in its cache."""
_THREADS = 2
_AHEAD = 3
"""Windows of names that are being prepared."""
_Prepared = list[tuple[NDArray[np.int64], Rows]]


class RowStream:
    """Turns windows of names into unit vectors."""

    def __init__(
        self, encode: RowEncoder, tokenizer: Tokenizer, pooling: Pooling, *, pad_id: int, rows: int = _ROWS
    ) -> None:
        """Take names that `tokenizer` cuts to the width of a row, `rows` rows at a time."""
        self.encode, self._tokenizer, self._pooling = encode, tokenizer, pooling
        self._pad_id, self._rows = pad_id, rows

    def __call__(self, windows: Iterable[list[str]]) -> Iterator[NDArray[np.float32]]:
        """Yield the unit vectors of each window's names.  # (names, dim)"""
        arriving: deque[_Arriving] = deque()
        for vectors in self.on_device(windows):
            arriving.append(_Arriving(vectors))
            if len(arriving) > 1:
                yield arriving.popleft().wait()
        for last in arriving:
            yield last.wait()

    def on_device(self, windows: Iterable[list[str]]) -> Iterator[Tensor]:
        """Yield the unit vectors of each window's names where they were computed.  # (names, dim)"""
        self.encode.refresh()
        model = self.encode.model
        for parts in self.prepared(windows):
            size = sum(len(names) for names, _ in parts)
            vectors = torch.empty((size, model.config.hidden_size), device=model.device)
            for names, rows in parts:
                found = functional.normalize(self.encode(RowTensors.of(rows, model.device)))
                vectors[to_device(names, model.device)] = found
            yield vectors

    def prepared(self, windows: Iterable[list[str]]) -> Iterator[_Prepared]:
        """Yield the rows of each window, a part at a time, with the numbers of their names."""
        pending: deque[Future[_Prepared]] = deque()
        with ThreadPoolExecutor(_THREADS) as threads:
            for window in windows:
                pending.append(threads.submit(self._prepare, window))
                if len(pending) > _AHEAD:
                    yield pending.popleft().result()
            while pending:
                yield pending.popleft().result()

    def _prepare(self, names: list[str]) -> _Prepared:
        tokens = split(self._tokenizer, names)
        rows = Rows.of(tokens, self._pooling, pad_id=self._pad_id, width=self.encode.width)
        return list(rows.cut(self._rows))


class _Arriving:
    """Vectors on their way to the CPU."""

    def __init__(self, vectors: Tensor) -> None:
        self._vectors = vectors.to("cpu", non_blocking=True)
        self._sent = torch.cuda.Event() if vectors.is_cuda else None
        if self._sent is not None:
            self._sent.record()

    def wait(self) -> NDArray[np.float32]:
        if self._sent is not None:
            self._sent.synchronize()
        found: NDArray[np.float32] = self._vectors.numpy()
        return found
