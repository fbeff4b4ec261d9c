"""Concurrent requests share batches of the encoder.

One thread does all the work of a process; the encoder itself uses several cores. While the thread is busy,
requests gather, and the next batch takes all that want the same. So a lone request never waits for company,
and batches grow with the load.

A long list goes in as pieces, one after the other (`PIECE`), so that short requests do not wait for its end.
A request is refused only at its beginning, in `admit`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

from sapbert.service.middleware.limits import refused

PIECE = 64
"""Mentions in a batch, unless a single request brings more at once."""
_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True, eq=False)
class _Job:
    key: Hashable
    """Jobs of the same key can be worked on together."""
    items: Sequence[str]
    work: Callable[[list[str]], Sequence[Any]]
    """Returns a result for each item."""
    done: asyncio.Future[Sequence[Any]]


class Batcher:
    """Works through what is asked, in batches, on one thread."""

    def __init__(self, *, on_batch: Callable[[int], None]) -> None:
        self._on_batch = on_batch
        self._jobs: deque[_Job] = deque()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="linking")
        self._running: asyncio.Task[None] | None = None

    @property
    def waiting(self) -> int:
        """Items that wait."""
        return sum(len(job.items) for job in self._jobs)

    def admit(self, limit: int) -> None:
        """Refuse a new request where so many items wait already."""
        if self.waiting >= limit:
            raise refused(503, "too many mentions are waiting; try again", retry_after=1)

    async def work(
        self, key: Hashable, items: Sequence[str], work: Callable[[list[str]], Sequence[_Result]]
    ) -> Sequence[_Result]:
        """Return the result of `work` for each item; it may get the items of others of the same key."""
        job = _Job(key, items, work, asyncio.get_running_loop().create_future())
        self._jobs.append(job)
        if self._running is None:
            self._running = asyncio.create_task(self._run())
        return await job.done

    async def call(self, function: Callable[[], _Result]) -> _Result:
        """Return what `function` does, on the thread that does everything."""
        [result] = await self.work(object(), [""], lambda _: [function()])
        return result

    def close(self) -> None:
        """Let the thread end when it has nothing to do."""
        self._thread.shutdown(wait=False)

    async def _run(self) -> None:
        try:
            while batch := self._next():
                self._on_batch(sum(len(job.items) for job in batch))
                outcomes = await asyncio.get_running_loop().run_in_executor(self._thread, _outcomes, batch)
                for job, outcome in zip(batch, outcomes, strict=True):
                    if job.done.done():
                        continue
                    if isinstance(outcome, Exception):
                        job.done.set_exception(outcome)
                    else:
                        job.done.set_result(outcome)
        finally:
            self._running = None

    def _next(self) -> list[_Job]:
        """Take the first job, and others of its key as long as there is room; who has left is dropped."""
        batch: list[_Job] = []
        others: deque[_Job] = deque()
        room = PIECE
        for job in self._jobs:
            if job.done.done():
                continue
            if not batch or (job.key == batch[0].key and len(job.items) <= room):
                batch.append(job)
                room -= len(job.items)
            else:
                others.append(job)
        self._jobs = others
        return batch


def _outcomes(batch: list[_Job]) -> list[Sequence[Any] | Exception]:
    """Work on a batch, on the thread; if it fails, on each job alone, so that none fails for another."""
    try:
        results = batch[0].work([item for job in batch for item in job.items])
    except Exception as error:  # noqa: BLE001  # it is raised again, by whoever waits for it
        return [error] if len(batch) == 1 else [_outcomes([job])[0] for job in batch]
    outcomes: list[Sequence[Any] | Exception] = []
    start = 0
    for job in batch:
        outcomes.append(results[start : start + len(job.items)])
        start += len(job.items)
    return outcomes
