from __future__ import annotations

import numpy as np
import pytest

from sapbert.encoder.flash.features import FeatureSpec, features
from sapbert.errors import ConfigError
from sapbert.pairs.artifact import Pairs
from sapbert.training.flash.batches import TrainingNames, batch_size
from sapbert.training.flash.table import feature_spec

SPEC: FeatureSpec = feature_spec({"word": 8, "characters-4": 8})


def prepare(pairs: Pairs, misspelt: float = 0.3) -> TrainingNames:
    return TrainingNames.prepare(pairs, np.arange(len(pairs)), SPEC, misspelt=misspelt, seed=2)


def test_names_have_their_features_and_copies_belong_to_their_names(tiny_pairs: Pairs) -> None:
    prepared, count = prepare(tiny_pairs), len(tiny_pairs.names)
    ids, offsets = features(tiny_pairs.names.take(range(count)), SPEC)
    assert np.array_equal(prepared.features.ids[: len(ids)], ids)
    assert np.array_equal(prepared.features.offsets[: count + 1], offsets)
    copies = prepared.pairs[len(tiny_pairs) :]
    assert np.array_equal(prepared.originals[copies[:, 1]], copies[:, 0])
    assert copies[:, 1].tolist() == list(range(count, len(prepared.originals)))
    assert len(copies) / len(prepared.pairs) == pytest.approx(0.3, abs=0.05)


def test_without_misspelling_the_pairs_are_those_given(tiny_pairs: Pairs) -> None:
    assert np.array_equal(prepare(tiny_pairs, misspelt=0).pairs, tiny_pairs.pairs)


def test_an_epoch_visits_pairs_once_and_can_be_resumed_at_any_step(tiny_pairs: Pairs) -> None:
    prepared = prepare(tiny_pairs)
    epoch = len(prepared.pairs) // 10
    batches = list(prepared.batches(10, 7, 0, 2 * epoch + 3))
    pairs = {tuple(pair) for rows in batches[:epoch] for pair in rows.reshape(2, 10).T.tolist()}
    assert len(pairs) == len({tuple(pair) for pair in prepared.pairs.tolist()} & pairs) == 10 * epoch
    assert not np.array_equal(batches[0], batches[epoch])
    for rows, again in zip(batches[5:], prepared.batches(10, 7, 5, 2 * epoch + 3), strict=True):
        assert np.array_equal(rows, again)


def test_rows_are_used_if_a_name_in_a_pair_has_the_feature(tiny_pairs: Pairs) -> None:
    first = TrainingNames.prepare(tiny_pairs, np.array([0]), SPEC, misspelt=0, seed=0)
    ids, _ = features(tiny_pairs.names.take(tiny_pairs.pairs[0]), SPEC)
    assert np.flatnonzero(first.used_rows(SPEC.rows)).tolist() == sorted(set(ids.tolist()))


def test_the_default_batch_is_smaller_for_few_pairs() -> None:
    assert [batch_size(None, 1024, pairs) for pairs in (3, 800, 10**6)] == [2, 100, 1024]
    assert batch_size(700, 1024, 800) == 700
    with pytest.raises(ConfigError, match="exceeds the 5 training pairs"):
        batch_size(6, 1024, 5)
