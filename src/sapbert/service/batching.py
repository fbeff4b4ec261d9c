"""Combine concurrent requests into batches for the encoder.

One thread per process runs all linking; the encoder itself uses several cores. Requests that arrive while
the thread is busy are queued, and the next batch takes all that have the same linker and settings. A single
request therefore never waits for others, and batches grow with the load.

A long list is submitted in chunks of `BATCH_SIZE`, one after the other, and the queue is fair between
clients, so that short requests do not wait for its end. A request whose expected wait is too long is refused
before its first chunk, in `require_capacity`: a client that retries elsewhere or later is better off than one
that waits for a timeout.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

from sapbert.service.fair_queue import FairQueue
from sapbert.service.middleware.limits import http_error

BATCH_SIZE = 64
"""Mentions per batch, unless a single job has more."""
_BATCH_OVERHEAD = 8
"""Time of a batch that does not depend on its size, in mentions."""
_DECAY = 0.9
"""Weight of earlier batches in the measured speed."""
_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True, eq=False)
class _Job:
    client: Hashable
    key: Hashable
    """Jobs with the same key can share a batch."""
    items: Sequence[str]
    function: Callable[[list[str]], Sequence[Any]]
    """Returns one result per item."""
    result: asyncio.Future[Sequence[Any]]

    @property
    def size(self) -> int:
        return len(self.items)


class _Speed:
    """Measured seconds per mention, of which a batch costs some more than it has."""

    def __init__(self) -> None:
        self._seconds = 0.0
        self._mentions = 0.0

    def record(self, mentions: int, seconds: float) -> None:
        self._seconds = _DECAY * self._seconds + seconds
        self._mentions = _DECAY * self._mentions + mentions + _BATCH_OVERHEAD

    def seconds(self, mentions: float, batches: int) -> float:
        """Return the expected time of batches; 0 before the first measurement."""
        return self._seconds / max(self._mentions, 1) * (mentions + batches * _BATCH_OVERHEAD)


class Batcher:
    """Runs jobs in batches on one thread."""

    def __init__(
        self, *, on_batch: Callable[[int], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._on_batch = on_batch
        self._clock = clock
        self._queue: FairQueue[_Job] = FairQueue()
        self._speed = _Speed()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="linking")
        self._running: asyncio.Task[None] | None = None

    @property
    def waiting(self) -> int:
        """Number of queued items."""
        return sum(job.size for job in self._queue if not job.result.done())

    def expected_wait(self, client: Hashable = None, size: int = 1) -> float:
        """Return how many seconds the queued jobs take that would run before a new job of a client.

        Measured by the speed of recent batches. The rest of the running batch is not included: a request
        that waits only for it is always accepted, however slow the encoder is.
        """
        ahead = self._queue.ahead(client, size)
        keys = min(len({job.key for job in self._queue}), math.ceil(ahead))
        return self._speed.seconds(ahead, max(keys, math.ceil(ahead / BATCH_SIZE)))

    def require_capacity(self, seconds: float, client: Hashable = None, size: int = 1) -> None:
        """Raise a 503 error if a new job of a client would wait for more than `seconds` of other jobs."""
        wait = self.expected_wait(client, size)
        if wait > seconds:
            message = f"the expected wait is {wait:.0f} seconds; try again later"
            raise http_error(503, message, retry_after=math.ceil(wait))

    async def submit(
        self,
        key: Hashable,
        items: Sequence[str],
        function: Callable[[list[str]], Sequence[_Result]],
        *,
        client: Hashable = None,
    ) -> Sequence[_Result]:
        """Return the result of `function` per item; a call may include items of other jobs with the key."""
        job = _Job(client, key, items, function, asyncio.get_running_loop().create_future())
        self._queue.add(job)
        if self._running is None:
            self._running = asyncio.create_task(self._run())
        return await job.result

    async def call(self, function: Callable[[], _Result], *, client: Hashable = None) -> _Result:
        """Run a function on the linking thread and return its result."""
        [result] = await self.submit(object(), [""], lambda _: [function()], client=client)
        return result

    def close(self) -> None:
        """Let the thread end as soon as it is idle."""
        self._thread.shutdown(wait=False)

    async def _run(self) -> None:
        try:
            while batch := self._next_batch():
                outcomes = await self._link(batch)
                for job, outcome in zip(batch, outcomes, strict=True):
                    if job.result.done():
                        continue
                    if isinstance(outcome, Exception):
                        job.result.set_exception(outcome)
                    else:
                        job.result.set_result(outcome)
        finally:
            self._running = None

    async def _link(self, batch: list[_Job]) -> list[Sequence[Any] | Exception]:
        """Run a batch on the thread and record its time."""
        size, start = sum(job.size for job in batch), self._clock()
        self._on_batch(size)
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, _outcomes, batch)
        finally:
            self._speed.record(size, self._clock() - start)

    def _next_batch(self) -> list[_Job]:
        """Take the next job, and others with its key while they fit."""
        self._queue.discard(_is_cancelled)
        return self._queue.take(room=BATCH_SIZE, fits=lambda first, other: first.key == other.key)


def _is_cancelled(job: _Job) -> bool:
    return job.result.done()


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
