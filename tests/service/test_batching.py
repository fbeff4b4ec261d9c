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
    assert [len(batch) for batch in worker.batches] == [1, BATCH_SIZE + 1, 64, 40]
    assert set(worker.batches[2]) == {"b", "d"}


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


def test_a_new_request_is_refused_if_too_many_are_queued() -> None:
    worker = Worker()
    worker.may.clear()

    async def scenario(batcher: Batcher) -> None:
        tasks = [asyncio.ensure_future(batcher.submit("k", ["a", "b"], worker)) for _ in range(3)]
        while not worker.batches:
            await asyncio.sleep(0)
        waiting = asyncio.ensure_future(batcher.submit("k", ["c", "d"], worker))
        await asyncio.sleep(0)
        batcher.require_capacity(3)
        with pytest.raises(HTTPException) as refusal:
            batcher.require_capacity(2)
        assert refusal.value.status_code == 503
        worker.may.set()
        await asyncio.gather(waiting, *tasks)
        assert batcher.waiting == 0

    run(scenario)


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
