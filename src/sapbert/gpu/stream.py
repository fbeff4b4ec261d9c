"""Encode a stream of names on a GPU: threads prepare the next names while the GPU computes.

From text to vector, most of the work is on the CPU. Threads tokenize and arrange the next windows of names;
for many names, processes tokenize (`tokens.tokenizer_pool`). Vectors are copied to the CPU as soon as they
are computed, and waited for two windows later.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from sapbert.gpu.bert import RowEncoder, RowTensors
from sapbert.gpu.rows import Rows
from sapbert.gpu.transfer import to_device
from sapbert.tokens.batching import TokenRows, usable_cores
from sapbert.tokens.pooling import Pooling
from sapbert.tokens.tokenizer import tokenize_names
from sapbert.tokens.tokenizer_pool import TokenizerPool

if TYPE_CHECKING:
    from tokenizers import Tokenizer

ROWS = 528
"""Rows computed at once, four per multiprocessor of an H200 (132): as fast as twice as many, and 4 % faster
than 512, which leaves some multiprocessors idle."""
_THREADS = 2
_AHEAD = 2
"""Windows of names prepared ahead of the GPU, and windows of vectors being copied from it."""
_MIN_NAMES_FOR_PROCESSES = 300_000
_MIN_CORES_FOR_PROCESSES = 4
_Tokenize = Callable[[list[str]], TokenRows]
_Prepared = list[tuple[NDArray[np.int64], Rows]]


def processes_for(names: int) -> int:
    """Return how many processes should tokenize `names` names; 0 for few names or cores."""
    cores = usable_cores()
    worthwhile = names >= _MIN_NAMES_FOR_PROCESSES and cores >= _MIN_CORES_FOR_PROCESSES
    return cores * 3 // 4 if worthwhile else 0


class RowStream:
    """Turns windows of names into unit vectors."""

    def __init__(
        self,
        encode: RowEncoder,
        tokenizer: Tokenizer,
        pooling: Pooling,
        *,
        pad_id: int,
        rows: int = ROWS,
        processes: int = 0,
    ) -> None:
        """Encode `rows` rows at a time; `tokenizer` must truncate names to the width of a row.

        `processes` is the number of processes that tokenize; 0 uses threads of this process.
        """
        self.encode, self._tokenizer, self._pooling = encode, tokenizer, pooling
        self._pad_id, self._rows, self._processes = pad_id, rows, processes

    def __call__(self, windows: Iterable[list[str]]) -> Iterator[NDArray[np.float32]]:
        """Yield the unit vectors of each window's names.  # (names, dim)"""
        pending: deque[_PendingCopy] = deque()
        for vectors in self.on_device(windows):
            pending.append(_PendingCopy(vectors))
            if len(pending) > _AHEAD:
                yield pending.popleft().wait()
        for copy in pending:
            yield copy.wait()

    def on_device(self, windows: Iterable[list[str]]) -> Iterator[Tensor]:
        """Yield the unit vectors of each window's names on the device.  # (names, dim)"""
        self.encode.refresh()
        model = self.encode.model
        for parts in self.prepared(windows):
            size = sum(len(names) for names, _ in parts)
            vectors = torch.empty((size, model.config.hidden_size), device=model.device)
            for names, rows in parts:
                unit = functional.normalize(self.encode(RowTensors.of(rows, model.device)))
                vectors[to_device(names, model.device)] = unit
            yield vectors

    def prepared(self, windows: Iterable[list[str]]) -> Generator[_Prepared]:
        """Yield the rows of each window in parts, each with the numbers of its names."""
        pending: deque[Future[_Prepared]] = deque()
        with ExitStack() as stack:
            tokenize: _Tokenize = partial(tokenize_names, self._tokenizer)
            if self._processes:
                tokenize = stack.enter_context(TokenizerPool(self._tokenizer, self._processes)).tokenize
            count = self._processes or _THREADS
            threads = stack.enter_context(ThreadPoolExecutor(count))
            for window in windows:
                pending.append(threads.submit(self._prepare, window, tokenize))
                if len(pending) > count + _AHEAD:
                    yield pending.popleft().result()
            while pending:
                yield pending.popleft().result()

    def _prepare(self, names: list[str], tokenize: _Tokenize) -> _Prepared:
        tokens = tokenize(names)
        rows = Rows.of(tokens, self._pooling, pad_id=self._pad_id, width=self.encode.width)
        return list(rows.cut(self._rows))


class _PendingCopy:
    """Vectors being copied to the CPU."""

    def __init__(self, vectors: Tensor) -> None:
        self._vectors = vectors.to("cpu", non_blocking=True)
        self._copied = torch.cuda.Event() if vectors.is_cuda else None
        if self._copied is not None:
            self._copied.record()

    def wait(self) -> NDArray[np.float32]:
        if self._copied is not None:
            self._copied.synchronize()
        vectors: NDArray[np.float32] = self._vectors.numpy()
        return vectors
