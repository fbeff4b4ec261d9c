"""Combine concurrent requests into batches for the encoder.

One thread per process runs all linking; the encoder itself uses several cores. Requests that arrive while
the thread is busy are queued, and the next batch takes all that have the same linker and settings. A single
request therefore never waits for others, and batches grow with the load.

A long list is submitted in chunks of `BATCH_SIZE`, one after the other, so that short requests do not wait
for its end. A request is refused only before its first chunk, in `require_capacity`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

from sapbert.service.middleware.limits import http_error

BATCH_SIZE = 64
"""Mentions per batch, unless a single job has more."""
_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True, eq=False)
class _Job:
    key: Hashable
    """Jobs with the same key can share a batch."""
    items: Sequence[str]
    function: Callable[[list[str]], Sequence[Any]]
    """Returns one result per item."""
    result: asyncio.Future[Sequence[Any]]


class Batcher:
    """Runs jobs in batches on one thread."""

    def __init__(self, *, on_batch: Callable[[int], None]) -> None:
        self._on_batch = on_batch
        self._jobs: deque[_Job] = deque()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="linking")
        self._running: asyncio.Task[None] | None = None

    @property
    def waiting(self) -> int:
        """Number of queued items."""
        return sum(len(job.items) for job in self._jobs)

    def require_capacity(self, limit: int) -> None:
        """Raise a 503 error if `limit` or more items are queued."""
        if self.waiting >= limit:
            raise http_error(503, "too many mentions are waiting; try again", retry_after=1)

    async def submit(
        self, key: Hashable, items: Sequence[str], function: Callable[[list[str]], Sequence[_Result]]
    ) -> Sequence[_Result]:
        """Return the result of `function` per item; a call may include items of other jobs with the key."""
        job = _Job(key, items, function, asyncio.get_running_loop().create_future())
        self._jobs.append(job)
        if self._running is None:
            self._running = asyncio.create_task(self._run())
        return await job.result

    async def call(self, function: Callable[[], _Result]) -> _Result:
        """Run a function on the linking thread and return its result."""
        [result] = await self.submit(object(), [""], lambda _: [function()])
        return result

    def close(self) -> None:
        """Let the thread end as soon as it is idle."""
        self._thread.shutdown(wait=False)

    async def _run(self) -> None:
        try:
            while batch := self._next_batch():
                self._on_batch(sum(len(job.items) for job in batch))
                outcomes = await asyncio.get_running_loop().run_in_executor(self._thread, _outcomes, batch)
                for job, outcome in zip(batch, outcomes, strict=True):
                    if job.result.done():
                        continue
                    if isinstance(outcome, Exception):
                        job.result.set_exception(outcome)
                    else:
                        job.result.set_result(outcome)
        finally:
            self._running = None

    def _next_batch(self) -> list[_Job]:
        """Take the first job, and others with its key while they fit; drop cancelled jobs."""
        batch: list[_Job] = []
        others: deque[_Job] = deque()
        room = BATCH_SIZE
        for job in self._jobs:
            if job.result.done():
                continue
            if not batch or (job.key == batch[0].key and len(job.items) <= room):
                batch.append(job)
                room -= len(job.items)
            else:
                others.append(job)
        self._jobs = others
        return batch


def _outcomes(batch: list[_Job]) -> list[Sequence[Any] | Exception]:
    """Run a batch on the thread; if it fails, run each job alone, so that no job fails because of another."""
    try:
        results = batch[0].function([item for job in batch for item in job.items])
    except Exception as error:  # noqa: BLE001  # raised again in the coroutine that awaits the job
        return [error] if len(batch) == 1 else [_outcomes([job])[0] for job in batch]
    outcomes: list[Sequence[Any] | Exception] = []
    start = 0
    for job in batch:
        outcomes.append(results[start : start + len(job.items)])
        start += len(job.items)
    return outcomes
