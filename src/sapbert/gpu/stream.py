"""Names to vectors on a GPU in a stream: threads prepare the next names while it computes those before.

From text to vector the GPU has the smaller part to do. Threads tokenise and lay out the next windows of
names; for many names they ask processes for the tokens (`token_processes`). Vectors set off for the CPU as
soon as they are there, and are waited for two windows later.
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
from sapbert.tokens.tokenizer import split
from sapbert.tokens.tokenizer_pool import TokenProcesses

if TYPE_CHECKING:
    from tokenizers import Tokenizer

ROWS = 528
"""Rows computed at once, four for each of an H200's 132 multiprocessors: as fast as twice as many, and 4 %
faster than 512, whose products leave some of them idle."""
_THREADS = 2
_AHEAD = 2
"""Windows of names that may wait for the GPU, and windows of vectors that may be on their way from it."""
_MANY = 300_000
"""Names from which it is worth to start processes."""
_CORES = 4
_Tokenise = Callable[[list[str]], TokenRows]
_Prepared = list[tuple[NDArray[np.int64], Rows]]


def processes_for(names: int) -> int:
    """Return how many processes are to tokenise so many names: none where few of either are there."""
    cores = usable_cores()
    return cores * 3 // 4 if names >= _MANY and cores >= _CORES else 0


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
        """Take names that `tokenizer` cuts to the width of a row, and encode `rows` rows at a time.

        With `processes`, so many of them tokenise; without, threads of this one do.
        """
        self.encode, self._tokenizer, self._pooling = encode, tokenizer, pooling
        self._pad_id, self._rows, self._processes = pad_id, rows, processes

    def __call__(self, windows: Iterable[list[str]]) -> Iterator[NDArray[np.float32]]:
        """Yield the unit vectors of each window's names.  # (names, dim)"""
        arriving: deque[_Arriving] = deque()
        for vectors in self.on_device(windows):
            arriving.append(_Arriving(vectors))
            if len(arriving) > _AHEAD:
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

    def prepared(self, windows: Iterable[list[str]]) -> Generator[_Prepared]:
        """Yield the rows of each window, a part at a time, with the numbers of their names."""
        pending: deque[Future[_Prepared]] = deque()
        with ExitStack() as stack:
            tokenise: _Tokenise = partial(split, self._tokenizer)
            if self._processes:
                tokenise = stack.enter_context(TokenProcesses(self._tokenizer, self._processes)).split
            count = self._processes or _THREADS
            threads = stack.enter_context(ThreadPoolExecutor(count))
            for window in windows:
                pending.append(threads.submit(self._prepare, window, tokenise))
                if len(pending) > count + _AHEAD:
                    yield pending.popleft().result()
            while pending:
                yield pending.popleft().result()

    def _prepare(self, names: list[str], tokenise: _Tokenise) -> _Prepared:
        tokens = tokenise(names)
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
