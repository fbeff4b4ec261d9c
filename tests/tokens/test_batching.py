from __future__ import annotations

import subprocess
import sys
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from sapbert.tokens.batching import TokenRows, encode_distinct, plan_batches, plan_equal_length_batches

lengths = st.lists(st.integers(min_value=0, max_value=40), max_size=60)
sequences = st.lists(st.lists(st.integers(min_value=1, max_value=99), max_size=6), min_size=1, max_size=8)


def test_names_of_similar_length_share_a_batch() -> None:
    batches = plan_batches([3, 9, 3, 10, 4], tokens=20, rows=2)
    assert [batch.tolist() for batch in batches] == [[3, 1], [4, 0], [2]]


def test_a_name_longer_than_the_budget_is_a_batch_of_its_own() -> None:
    assert [batch.tolist() for batch in plan_batches([2, 50, 2], tokens=10, rows=9)] == [[1], [0, 2]]


@pytest.mark.parametrize(("tokens", "rows"), [(0, 1), (1, 0), (-5, 3)])
def test_a_budget_below_one_is_refused(tokens: int, rows: int) -> None:
    with pytest.raises(ValueError, match="tokens and rows are at least 1"):
        plan_batches([1], tokens=tokens, rows=rows)


@given(lengths, st.integers(min_value=1, max_value=90), st.integers(min_value=1, max_value=12))
def test_every_name_is_in_one_batch_and_every_batch_is_in_budget(
    sizes: list[int], tokens: int, rows: int
) -> None:
    batches = plan_batches(sizes, tokens=tokens, rows=rows)

    assert sorted(index for batch in batches for index in batch.tolist()) == list(range(len(sizes)))
    for batch in batches:
        longest = max(sizes[index] for index in batch)
        assert 1 <= len(batch) <= rows
        assert len(batch) == 1 or longest * len(batch) <= tokens


@given(lengths, st.integers(min_value=1, max_value=90), st.integers(min_value=1, max_value=12))
def test_batches_are_as_full_as_possible(sizes: list[int], tokens: int, rows: int) -> None:
    batches = plan_batches(sizes, tokens=tokens, rows=rows)

    for batch in batches[:-1]:
        longest = max(sizes[index] for index in batch)
        assert len(batch) == rows or max(longest, 1) * (len(batch) + 1) > tokens


def test_sequences_are_padded_to_the_longest_chosen() -> None:
    rows = TokenRows.of([[2, 7, 3], [2, 3], [2, 8, 9, 3]], [[1, 0, 1], [1, 1], [1, 0, 0, 1]])
    batch = rows.pad(np.array([1, 0]), pad_id=50)

    assert batch.ids.tolist() == [[2, 3, 50], [2, 7, 3]]
    assert batch.attention.tolist() == [[True, True, False], [True, True, True]]
    assert batch.special.tolist() == [[True, True, True], [True, False, True]]


@given(sequences, st.integers(min_value=0, max_value=3))
def test_padded_batches_contain_the_tokens_of_the_tokenizer(ids: list[list[int]], extra: int) -> None:
    flags = [[token % 2 for token in row] for row in ids]
    chosen = np.arange(len(ids))[::-1]
    width = max(map(len, ids)) + extra
    batch = TokenRows.of(ids, flags).pad(chosen, pad_id=0, width=width)

    assert batch.ids.shape == (len(ids), width)
    for place, row in enumerate(chosen):
        blank = width - len(ids[row])
        assert batch.ids[place].tolist() == ids[row] + [0] * blank
        assert batch.attention[place].tolist() == [True] * len(ids[row]) + [False] * blank
        assert batch.special[place].tolist() == [flag == 1 for flag in flags[row]] + [True] * blank


def test_batching_and_reading_a_folder_load_no_torch() -> None:
    code = (
        "import sys, sapbert.tokens.batching, sapbert.encoder.model_folder, sapbert.tokens.pooling\n"
        "raise SystemExit(any(name in sys.modules for name in ('torch', 'transformers', 'polars')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@given(sequences, st.data())
def test_a_span_of_rows_is_those_rows(rows: list[list[int]], data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(rows)))
    stop = data.draw(st.integers(start, len(rows)))
    flags = [[token % 2 for token in row] for row in rows]

    found = TokenRows.of(rows, flags).span(start, stop)

    expected = TokenRows.of(rows[start:stop], flags[start:stop])
    assert found.ids.tolist() == expected.ids.tolist()
    assert found.special.tolist() == expected.special.tolist()
    assert found.offsets.tolist() == expected.offsets.tolist()


@given(st.lists(st.integers(0, 70), max_size=60), st.integers(1, 200))
def test_equal_length_batches_have_every_sequence_once_and_one_length_each(
    lengths: list[int], tokens: int
) -> None:
    batches = plan_equal_length_batches(lengths, tokens=tokens)

    assert sorted(row for batch in batches for row in batch) == list(range(len(lengths)))
    for batch in batches:
        assert len({lengths[row] for row in batch}) == 1
        assert len(batch) == 1 or len(batch) * lengths[batch[0]] <= tokens


def test_equal_length_batches_are_as_large_as_the_budget_allows() -> None:
    assert [len(batch) for batch in plan_equal_length_batches([4] * 7, tokens=12)] == [3, 3, 1]
    with pytest.raises(ValueError, match="tokens is at least 1"):
        plan_equal_length_batches([1], tokens=0)


@given(st.lists(st.sampled_from("abcde"), max_size=20), st.integers(1, 7))
def test_each_distinct_name_is_encoded_once_and_put_in_every_place(names: list[str], window: int) -> None:
    seen: list[str] = []

    def encode(part: list[str]) -> NDArray[np.float32]:
        assert len(part) <= window
        seen.extend(part)
        return np.array([[ord(name)] for name in part], np.float32)

    vectors = encode_distinct(names, partial(map, encode), dimension=1, window=window)

    assert vectors.shape == (len(names), 1)
    assert [chr(int(vector[0])) for vector in vectors] == names
    assert sorted(seen) == sorted(set(names))
