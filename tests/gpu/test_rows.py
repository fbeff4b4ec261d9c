from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from sapbert.gpu.rows import PADDING, Rows
from sapbert.tokens.batching import TokenRows
from sapbert.tokens.pooling import Pooling

WIDTH, PAD = 16, 999
lengths = st.lists(st.integers(1, WIDTH), max_size=60)


def named(sizes: list[int]) -> TokenRows:
    """Return tokens that encode their name and position; the first and the last are special."""
    rows = [[100 * name + place for place in range(size)] for name, size in enumerate(sizes)]
    flags = [[int(place in (0, size - 1)) for place in range(size)] for size in sizes]
    return TokenRows.of(rows, flags)


def spans(rows: Rows) -> dict[int, NDArray[np.int64]]:
    """Return the indices of the tokens of each name."""
    return {name: np.flatnonzero(rows.names == name) for name in set(rows.names.tolist()) - {PADDING}}


def test_names_share_a_row() -> None:
    rows = Rows.of(named([10, 3, 2, 6, 11]), Pooling.CLS, pad_id=PAD, width=WIDTH)

    assert len(rows) == 2
    assert rows.names.reshape(2, WIDTH).tolist() == [[4] * 11 + [1] * 3 + [2] * 2, [0] * 10 + [3] * 6]
    assert rows.positions[:WIDTH].tolist() == [*range(11), 0, 1, 2, 0, 1]
    assert rows.picks.tolist() == [16, 11, 14, 26, 0]


@given(lengths, st.integers(1, 5))
def test_every_token_is_in_one_row_in_order(sizes: list[int], multiple: int) -> None:
    rows = Rows.of(named(sizes), Pooling.CLS, pad_id=PAD, width=WIDTH, multiple=multiple)
    found = spans(rows)

    assert len(rows) % multiple == 0
    assert sorted(found) == list(range(len(sizes)))
    for name, places in found.items():
        assert places.tolist() == list(range(places[0], places[0] + sizes[name]))
        assert places[0] // WIDTH == places[-1] // WIDTH
        assert rows.ids[places].tolist() == [100 * name + place for place in range(sizes[name])]
        assert rows.positions[places].tolist() == list(range(sizes[name]))
        assert rows.picks[name] == places[0]
    padding = rows.names == PADDING
    assert padding.sum() == len(rows.ids) - sum(sizes)
    assert (rows.ids[padding] == PAD).all()


@given(lengths)
def test_all_rows_but_one_are_more_than_half_full(sizes: list[int]) -> None:
    """This is what first-fit guarantees."""
    rows = Rows.of(named(sizes), Pooling.CLS, pad_id=PAD, width=WIDTH)
    filled = sorted((rows.names.reshape(-1, WIDTH) != PADDING).sum(1).tolist())
    assert len(filled) < 2 or filled[0] + filled[1] > WIDTH


@given(lengths, st.integers(1, 4))
def test_rows_can_be_cut_into_parts(sizes: list[int], at_once: int) -> None:
    rows = Rows.of(named(sizes), Pooling.MEAN, pad_id=PAD, width=WIDTH)
    seen: list[int] = []
    for numbers, part in rows.cut(at_once):
        assert len(part) <= at_once
        seen.extend(numbers.tolist())
        found = spans(part)
        assert sorted(found) == list(range(len(numbers)))
        for local, name in enumerate(numbers.tolist()):
            assert part.ids[found[local]].tolist() == [100 * name + place for place in range(sizes[name])]
            assert part.picks[local] == found[local][0]
            assert part.weights[found[local]].sum() == pytest.approx(1)
    assert sorted(seen) == list(range(len(sizes)))


@given(lengths, st.sampled_from([Pooling.MEAN, Pooling.NO_SPECIAL, Pooling.FIRST]))
def test_token_weights_follow_the_pooling(sizes: list[int], pooling: Pooling) -> None:
    rows = Rows.of(named(sizes), pooling, pad_id=PAD, width=WIDTH)
    for name, places in spans(rows).items():
        own = places[1:-1] if len(places) > 2 else places
        if pooling is Pooling.FIRST:
            assert rows.picks[name] == own[0]
            continue
        counted = places if pooling is Pooling.MEAN else own
        expected = np.where(np.isin(places, counted), 1 / len(counted), 0)
        np.testing.assert_allclose(rows.weights[places], expected, rtol=1e-6)


def test_a_name_longer_than_a_row_is_refused() -> None:
    with pytest.raises(ValueError, match="must have 1 to 16 tokens"):
        Rows.of(named([17]), Pooling.CLS, pad_id=PAD, width=WIDTH)
    with pytest.raises(ValueError, match="depends on padding"):
        Rows.of(named([3]), Pooling.MEAN_ALL, pad_id=PAD, width=WIDTH)
