from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from sapbert.errors import FormatError
from sapbert.parallel import ordered_map


def test_results_are_in_the_order_of_the_items() -> None:
    second_done = threading.Event()

    def work(item: int) -> int:
        if item == 0:
            assert second_done.wait(timeout=60)
        elif item == 1:
            second_done.set()
        return item * item

    assert list(ordered_map(work, range(50))) == [item * item for item in range(50)]
    assert list(ordered_map(work, [])) == []


def test_an_error_of_the_function_is_raised() -> None:
    def work(item: int) -> int:
        if item == 7:
            raise FormatError("somewhere", 7, "bad luck")
        return item

    results = ordered_map(work, range(1000))
    assert [next(results) for _ in range(7)] == list(range(7))
    with pytest.raises(FormatError, match="somewhere:7: bad luck"):
        next(results)


def test_an_error_of_the_items_is_raised() -> None:
    def items() -> Iterator[int]:
        yield 1
        raise FormatError("somewhere", None, "cut off")

    with pytest.raises(FormatError, match="somewhere: cut off"):
        list(ordered_map(str, items()))


def test_items_are_consumed_only_a_few_ahead() -> None:
    taken: list[int] = []

    def take(item: int) -> int:
        taken.append(item)
        return item

    results = ordered_map(str, map(take, range(10_000)))
    assert next(results) == "0"
    assert len(taken) < 1000
    results.close()  # type: ignore[attr-defined]  # it is a generator, though it only promises an iterator
