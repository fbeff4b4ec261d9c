"""Hashes of spans against the formula, number by number."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from sapbert.span_hashes import BASE, MODULUS, SpanHashes

NUMBERS = st.lists(st.integers(0, 2**32 - 1), max_size=30)


def hash_of(numbers: list[int]) -> int:
    return sum(number * pow(BASE, place, MODULUS) for place, number in enumerate(numbers)) % MODULUS


@given(numbers=NUMBERS, data=st.data())
def test_a_span_has_the_hash_of_its_numbers_alone(numbers: list[int], data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(numbers)))
    stop = data.draw(st.integers(start, len(numbers)))
    hashes = SpanHashes(np.array(numbers, np.uint32))

    found = hashes(np.array([start]), np.array([stop]))

    assert found.tolist() == [hash_of(numbers[start:stop])]


def test_long_sequences_are_hashed_to_the_end() -> None:
    numbers = list(range(5_000))
    hashes = SpanHashes(np.array(numbers, np.uint64))

    assert hashes(np.array([4_990]), np.array([5_000])).tolist() == [hash_of(numbers[4_990:])]
