"""Map a function over items on several threads while keeping the order of the items."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from os import cpu_count
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


def ordered_map(function: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
    """Yield `function(item)` for each item, in order, computed on all cores.

    Items are consumed only a few ahead of the results, so memory does not grow with their number.
    """
    # One thread more than there are cores: while one waits for polars, another uses the core.
    workers = (cpu_count() or 1) + 1
    pending: deque[Future[Result]] = deque()
    with ThreadPoolExecutor(workers) as pool:
        try:
            for item in items:
                pending.append(pool.submit(function, item))
                if len(pending) > workers + 1:
                    yield pending.popleft().result()
            while pending:
                yield pending.popleft().result()
        finally:
            for future in pending:
                future.cancel()
