from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sapbert.training.mention_order import MentionOrder
from sapbert.training.settings import BiosynSettings


def batches(order: MentionOrder, done: int = 0) -> list[tuple[int, list[int]]]:
    return [(epoch, batch.tolist()) for epoch, batch in order.batches(done)]


def test_every_epoch_has_all_mentions_in_a_new_order() -> None:
    order = MentionOrder(50, BiosynSettings(batch_size=16, epochs=2))

    assert (order.steps_per_epoch, order.total) == (4, 8)
    steps = batches(order)
    assert [(epoch, len(batch)) for epoch, batch in steps[:4]] == [(0, 16), (0, 16), (0, 16), (0, 2)]
    first, second = ([row for epoch, batch in steps if epoch == own for row in batch] for own in (0, 1))
    assert sorted(first) == sorted(second) == list(range(50))
    assert first != second


@given(st.integers(1, 30), st.integers(1, 8), st.integers(1, 3), st.integers(0, 100))
def test_a_resumed_run_has_the_remaining_batches(mentions: int, size: int, times: int, done: int) -> None:
    order = MentionOrder(mentions, BiosynSettings(batch_size=size, epochs=times))

    assert batches(order, done) == batches(order)[done:]
