from __future__ import annotations

from typing import get_args

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sapbert.tokens.pooling import Pooling, PoolingName, pool


def pool_slowly(
    hidden: torch.Tensor, attention: list[list[int]], special: list[list[int]], pooling: Pooling
) -> torch.Tensor:
    """Pool with loops; an empty name falls back to all its tokens."""
    vectors = []
    for row, (seen, added) in enumerate(zip(attention, special, strict=True)):
        real = [place for place, flag in enumerate(seen) if flag]
        own = [place for place in real if not added[place]]
        places = {
            Pooling.CLS: real[:1],
            Pooling.MEAN: real,
            Pooling.MEAN_ALL: list(range(len(seen))),
            Pooling.FIRST: own[:1] or real[:1],
            Pooling.NO_SPECIAL: own or real,
        }[pooling]
        vectors.append(sum(hidden[row, place] for place in places) / len(places))
    return torch.stack([torch.as_tensor(vector) for vector in vectors])


def masks(lengths: list[int], width: int) -> tuple[list[list[int]], list[list[int]]]:
    """Return the masks of names with the given numbers of tokens between [CLS] and [SEP]."""
    attention = [[1] * (length + 2) + [0] * (width - length - 2) for length in lengths]
    special = [[1] + [0] * length + [1] * (width - length - 1) for length in lengths]
    return attention, special


@pytest.mark.parametrize(
    ("pooling", "expected"),
    [
        (Pooling.CLS, 1.0),
        (Pooling.MEAN, (1 + 2 + 4 + 8) / 4),
        (Pooling.MEAN_ALL, (1 + 2 + 4 + 8 + 25) / 5),
        (Pooling.FIRST, 2.0),
        (Pooling.NO_SPECIAL, (2 + 4) / 2),
    ],
)
def test_each_pooling_uses_its_tokens(pooling: Pooling, expected: float) -> None:
    hidden = torch.tensor([[[1.0], [2.0], [4.0], [8.0], [25.0]]])  # [CLS] heart attack [SEP] [PAD]
    attention, special = (torch.tensor(mask) for mask in masks([2], 5))
    assert pool(hidden, attention, special, pooling).tolist() == [[expected]]


@pytest.mark.parametrize("pooling", list(Pooling))
@given(
    lengths=st.lists(st.integers(min_value=0, max_value=6), min_size=1, max_size=5), extra=st.integers(0, 3)
)
@settings(max_examples=30)
def test_pooling_equals_the_slow_loop(pooling: Pooling, lengths: list[int], extra: int) -> None:
    attention, special = masks(lengths, max(lengths) + 2 + extra)
    shape = (len(lengths), len(attention[0]), 4)
    hidden = torch.randn(shape, generator=torch.Generator().manual_seed(sum(lengths)))

    fast = pool(hidden, torch.tensor(attention), torch.tensor(special).bool(), pooling)

    torch.testing.assert_close(fast, pool_slowly(hidden, attention, special, pooling))


@pytest.mark.parametrize("pooling", [choice for choice in Pooling if choice is not Pooling.MEAN_ALL])
def test_padding_does_not_matter_even_if_it_is_nan(pooling: Pooling) -> None:
    hidden = torch.randn((2, 6, 4), generator=torch.Generator().manual_seed(0))
    attention, special = (torch.tensor(mask) for mask in masks([0, 2], 6))
    spoiled = hidden.masked_fill(attention[:, :, None] == 0, float("nan"))
    short = pool(hidden[:, :4], attention[:, :4], special[:, :4], pooling)

    torch.testing.assert_close(pool(spoiled, attention, special, pooling), short)


@pytest.mark.parametrize("pooling", list(Pooling))
def test_gradients_reach_the_pooled_tokens_of_an_empty_name(pooling: Pooling) -> None:
    hidden = torch.randn((1, 3, 2), generator=torch.Generator().manual_seed(0), requires_grad=True)
    attention, special = (torch.tensor(mask) for mask in masks([0], 3))
    pool(hidden, attention, special, pooling).sum().backward()

    assert hidden.grad is not None
    assert torch.isfinite(hidden.grad).all()
    assert hidden.grad[0, 0].abs().sum() > 0


def test_the_names_of_poolings_are_the_values_of_the_enum() -> None:
    assert list(get_args(PoolingName)) == list(Pooling)
