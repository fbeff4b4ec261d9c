from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sapbert.training.mention_order import Epochs
from sapbert.training.settings import BiosynSettings


def learned(epochs: Epochs, done: int = 0) -> list[tuple[int, list[int]]]:
    return [(epoch, batch.tolist()) for epoch, batch in epochs.after(done)]


def test_every_epoch_has_all_mentions_in_another_order() -> None:
    epochs = Epochs(50, BiosynSettings(batch_size=16, epochs=2))

    assert (epochs.steps, epochs.total) == (4, 8)
    steps = learned(epochs)
    assert [(epoch, len(batch)) for epoch, batch in steps[:4]] == [(0, 16), (0, 16), (0, 16), (0, 2)]
    first, second = ([row for epoch, batch in steps if epoch == own for row in batch] for own in (0, 1))
    assert sorted(first) == sorted(second) == list(range(50))
    assert first != second


@given(st.integers(1, 30), st.integers(1, 8), st.integers(1, 3), st.integers(0, 100))
def test_a_run_goes_on_with_the_batches_that_were_left(
    mentions: int, size: int, times: int, done: int
) -> None:
    epochs = Epochs(mentions, BiosynSettings(batch_size=size, epochs=times))

    assert learned(epochs, done) == learned(epochs)[done:]
