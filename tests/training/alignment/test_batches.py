from __future__ import annotations

from pathlib import Path
from threading import Event

import numpy as np
import pytest

from sapbert.encoder.loading import load_encoder
from sapbert.encoder.transformer import tokenize
from sapbert.errors import ConfigError
from sapbert.pairs.artifact import Pairs
from sapbert.training.alignment.batches import Batches, PairBatch
from sapbert.training.held_out import split_pairs


def make_batches(
    pairs: Pairs, base: Path, *, batch_size: int = 8, seed: int = 1, rank: int = 0, world: int = 1
) -> Batches:
    _, tokenizer = load_encoder(base)
    rows = np.arange(len(pairs))
    return Batches(
        pairs, rows, tokenizer, batch_size=batch_size, max_length=25, seed=seed, rank=rank, world=world
    )


def test_a_resumed_run_sees_the_batches_it_would_have_seen(tiny_pairs: Pairs, tiny_base: Path) -> None:
    batches = make_batches(tiny_pairs, tiny_base)
    total = 2 * batches.steps_per_epoch
    whole = [batch.tokens.ids.tolist() for batch in batches.after(0, total)]
    resumed = [batch.tokens.ids.tolist() for batch in batches.after(total // 2 - 3, total)]

    assert len(whole) == total
    assert resumed == whole[total // 2 - 3 :]


@pytest.mark.parametrize("at_once", [1, 24, 1000])
def test_batches_prepared_together_equal_those_prepared_one_by_one(
    at_once: int, tiny_pairs: Pairs, tiny_base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sapbert.training.alignment.batches._PAIRS_AHEAD", at_once)
    batches = make_batches(tiny_pairs, tiny_base)
    names = tiny_pairs.names
    for group, batch in zip(batches.numbers(3, 15), batches.after(3, 15), strict=True):
        left, right = tiny_pairs.pairs[group].T
        rows = np.concatenate([left, right])
        tokens = tokenize(load_encoder(tiny_base)[1], [names[row] for row in rows], max_length=25)
        assert batch.tokens.ids.tolist() == tokens.ids.tolist()
        assert batch.tokens.offsets.tolist() == tokens.offsets.tolist()
        assert batch.labels.tolist() == tiny_pairs.concepts[rows].tolist()
        assert batch.shared_concept.tolist() == tiny_pairs.share_concept(rows).tolist()


def test_two_groups_of_batches_are_prepared_ahead(
    tiny_pairs: Pairs, tiny_base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sapbert.training.alignment.batches._PAIRS_AHEAD", 1)
    made: list[PairBatch] = []
    ahead = Event()

    def make(batch: PairBatch) -> int:
        made.append(batch)
        if len(made) == 3:
            ahead.set()
        return len(made)

    ready = make_batches(tiny_pairs, tiny_base).prepared(0, 9, make)
    assert next(ready) == 1
    assert ahead.wait(60)
    assert list(ready) == list(range(2, 10))


def test_an_epoch_visits_pairs_once_and_in_another_order_than_the_next(
    tiny_pairs: Pairs, tiny_base: Path
) -> None:
    batches = make_batches(tiny_pairs, tiny_base, batch_size=2)
    numbers = list(batches.numbers(0, 2 * batches.steps_per_epoch))
    first, second = (
        np.concatenate(numbers[: batches.steps_per_epoch]),
        np.concatenate(numbers[batches.steps_per_epoch :]),
    )
    assert len(set(first.tolist())) == len(first) == batches.steps_per_epoch * 2
    assert first.tolist() != second.tolist()
    other_seed = make_batches(tiny_pairs, tiny_base, batch_size=2, seed=2)
    assert np.concatenate(list(other_seed.numbers(0, batches.steps_per_epoch))).tolist() != first.tolist()


def test_processes_share_a_batch_and_agree_on_labels_and_shared_concepts(
    tiny_pairs: Pairs, tiny_base: Path
) -> None:
    whole = next(make_batches(tiny_pairs, tiny_base).after(0, 1))
    shares = [next(make_batches(tiny_pairs, tiny_base, rank=rank, world=2).after(0, 1)) for rank in (0, 1)]

    assert sum(len(share.tokens.lengths) for share in shares) == len(whole.tokens.lengths)
    assert (shares[0].labels == shares[1].labels).all()
    assert (shares[0].shared_concept == shares[1].shared_concept).all()
    assert sorted(shares[0].labels.tolist()) == sorted(whole.labels.tolist())
    assert shares[0].shared_concept.sum() == whole.shared_concept.sum()


def test_held_out_concepts_are_not_trained_on(tiny_pairs: Pairs) -> None:
    split = split_pairs(tiny_pairs, held_out_concepts=5, seed=3)
    owner = tiny_pairs.concepts[tiny_pairs.pairs[:, 0]]

    assert len(set(owner[split.held_out].tolist())) == 5
    assert set(owner[split.held_out].tolist()).isdisjoint(owner[split.train].tolist())
    assert len(split.train) + len(split.held_out) == len(tiny_pairs)
    assert len(split_pairs(tiny_pairs, held_out_concepts=0, seed=3).held_out) == 0
    # At most a fifth of the concepts is held out.
    assert len(split_pairs(tiny_pairs, held_out_concepts=10_000, seed=3).train) > len(tiny_pairs) / 2


def test_a_batch_larger_than_the_data_is_refused(tiny_pairs: Pairs, tiny_base: Path) -> None:
    with pytest.raises(ConfigError, match=rf"at most {len(tiny_pairs)}"):
        make_batches(tiny_pairs, tiny_base, batch_size=len(tiny_pairs) + 1)


def test_a_batch_size_not_divisible_by_the_processes_is_refused(tiny_pairs: Pairs, tiny_base: Path) -> None:
    with pytest.raises(ConfigError, match="number of processes, 3"):
        make_batches(tiny_pairs, tiny_base, batch_size=8, world=3)
