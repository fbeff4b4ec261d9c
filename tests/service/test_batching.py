from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from starlette.exceptions import HTTPException

from sapbert.service.batching import BATCH_SIZE, Batcher

T = TypeVar("T")


class Worker:
    """Doubles texts, once it is released, and records its batches."""

    def __init__(self) -> None:
        self.batches: list[list[str]] = []
        self.may = threading.Event()
        self.may.set()

    def __call__(self, texts: list[str]) -> list[str]:
        self.batches.append(texts)
        assert self.may.wait(10)
        if "poison" in texts:
            raise ValueError("poison")
        return [text * 2 for text in texts]


def run(scenario: Callable[[Batcher], Awaitable[T]], sizes: list[int] | None = None) -> T:
    async def start() -> T:
        batcher = Batcher(on_batch=(sizes if sizes is not None else []).append)
        try:
            return await scenario(batcher)
        finally:
            batcher.close()

    return asyncio.run(start())


async def occupy(batcher: Batcher, worker: Worker) -> asyncio.Future[Sequence[str]]:
    """Keep the thread busy with one request, until the worker is released."""
    worker.may.clear()
    first = asyncio.ensure_future(batcher.submit("k", ["first"], worker))
    while not worker.batches:
        await asyncio.sleep(0)
    return first


def test_a_single_request_does_not_wait() -> None:
    worker = Worker()
    assert run(lambda batcher: batcher.submit("k", ["a", "b"], worker)) == ["aa", "bb"]
    assert worker.batches == [["a", "b"]]


def test_requests_that_arrive_while_the_thread_is_busy_share_a_batch() -> None:
    worker = Worker()
    sizes: list[int] = []

    async def scenario(batcher: Batcher) -> Any:
        first = await occupy(batcher, worker)
        others = [asyncio.ensure_future(batcher.submit("k", [f"{number}"], worker)) for number in range(10)]
        other_key = asyncio.ensure_future(batcher.submit("other", ["x"], worker))
        await asyncio.sleep(0)
        assert batcher.waiting == 11
        worker.may.set()
        return await asyncio.gather(first, *others, other_key)

    answers = run(scenario, sizes)

    assert worker.batches == [["first"], [f"{number}" for number in range(10)], ["x"]]
    assert sizes == [1, 10, 1]
    assert answers[1:11] == [[f"{number}{number}"] for number in range(10)]


def test_a_batch_is_bounded_unless_a_single_request_is_larger() -> None:
    worker = Worker()

    async def scenario(batcher: Batcher) -> None:
        first = await occupy(batcher, worker)
        requests = [["a"] * (BATCH_SIZE + 1), ["b"] * 40, ["c"] * 40, ["d"] * 24]
        tasks = [asyncio.ensure_future(batcher.submit("k", items, worker)) for items in requests]
        await asyncio.sleep(0)
        worker.may.set()
        await asyncio.gather(first, *tasks)

    run(scenario)
    assert [len(batch) for batch in worker.batches] == [1, 64, 40, BATCH_SIZE + 1]
    assert set(worker.batches[1]) == {"b", "d"}


def test_a_failing_request_does_not_fail_the_others_of_its_batch() -> None:
    worker = Worker()

    async def scenario(batcher: Batcher) -> list[Any]:
        first = await occupy(batcher, worker)
        tasks = [asyncio.ensure_future(batcher.submit("k", [text], worker)) for text in ("a", "poison", "b")]
        await asyncio.sleep(0)
        worker.may.set()
        await first
        return await asyncio.gather(*tasks, return_exceptions=True)

    good, bad, other = run(scenario)
    assert (good, other) == (["aa"], ["bb"])
    assert isinstance(bad, ValueError)


def test_cancelled_requests_are_skipped() -> None:
    worker = Worker()

    async def scenario(batcher: Batcher) -> None:
        first = await occupy(batcher, worker)
        left = asyncio.ensure_future(batcher.submit("k", ["left"], worker))
        stays = asyncio.ensure_future(batcher.submit("k", ["stays"], worker))
        await asyncio.sleep(0)
        left.cancel()
        first.cancel()
        await asyncio.sleep(0)
        worker.may.set()
        await stays

    run(scenario)
    assert worker.batches == [["first"], ["stays"]]


def test_a_single_mention_passes_many_lists() -> None:
    worker = Worker()

    async def scenario(batcher: Batcher) -> None:
        first = await occupy(batcher, worker)
        lists = [
            asyncio.ensure_future(
                batcher.submit(f"{number % 2}", ["list"] * BATCH_SIZE, worker, client=f"{number // 2}")
            )
            for number in range(40)
        ]
        singles = [
            asyncio.ensure_future(batcher.submit("k", ["single"], worker, client=client))
            for client in ("0", "new")
        ]
        await asyncio.sleep(0)
        worker.may.set()
        await asyncio.gather(first, *lists, *singles)

    run(scenario)
    assert worker.batches[1] == ["single", "single"]


class Clock:
    """A clock that tests set."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_request_is_refused_if_its_expected_wait_is_too_long() -> None:
    worker, clock = Worker(), Clock()

    async def scenario() -> None:
        batcher = Batcher(on_batch=lambda _: None, clock=clock)
        assert batcher.expected_wait() == 0
        # 92 mentions and the overhead of a batch take 10 seconds: 0.1 seconds each.
        first = asyncio.ensure_future(batcher.submit("k", ["a"] * 92, worker))
        await occupied(worker)
        clock.now += 10
        worker.may.set()
        await first
        assert batcher.expected_wait() == 0

        worker.may.clear()
        worker.batches.clear()
        running = asyncio.ensure_future(batcher.submit("k", ["a"] * 12, worker))
        await occupied(worker)
        assert batcher.expected_wait() == 0
        queued = [
            asyncio.ensure_future(batcher.submit("k", ["b"] * 50, worker, client=name)) for name in "xy"
        ]
        await asyncio.sleep(0)
        assert batcher.waiting == 100
        # A list waits for both of the others, a single mention for neither.
        assert batcher.expected_wait("z", 64) == pytest.approx(11.6)
        assert batcher.expected_wait("z", 1) < 2
        batcher.require_capacity(2, "z", 1)
        with pytest.raises(HTTPException) as refusal:
            batcher.require_capacity(2, "z", 64)
        assert refusal.value.status_code == 503
        assert refusal.value.headers == {"Retry-After": "12"}
        worker.may.set()
        await asyncio.gather(running, *queued)
        assert batcher.waiting == 0
        batcher.close()

    async def occupied(worker: Worker) -> None:
        while not worker.batches:
            await asyncio.sleep(0)

    worker.may.clear()
    asyncio.run(scenario())


def test_a_function_can_be_called_on_the_linking_thread() -> None:
    names = run(lambda batcher: batcher.call(lambda: threading.current_thread().name))
    assert names.startswith("linking")


@given(st.lists(st.tuples(st.sampled_from("xyz"), st.lists(st.text(max_size=3), min_size=1, max_size=90))))
@settings(max_examples=30)
def test_every_request_gets_its_own_results(requests: list[tuple[str, list[str]]]) -> None:
    def worker(key: str) -> Callable[[list[str]], list[str]]:
        return lambda texts: [key + text for text in texts]

    async def scenario(batcher: Batcher) -> list[Any]:
        return await asyncio.gather(*(batcher.submit(key, items, worker(key)) for key, items in requests))

    assert [list(answer) for answer in run(scenario)] == [
        [key + item for item in items] for key, items in requests
    ]
