from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy import stats

from sapbert.evaluation.significance import bootstrap_interval, mcnemar, randomisation_test, t_test

BITS = st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=60)


def test_an_accuracy_lies_inside_its_interval() -> None:
    low, high = bootstrap_interval(np.array([1.0] * 80 + [0.0] * 20))

    assert low < 0.8 < high
    assert (low, high) == pytest.approx((0.72, 0.88), abs=0.011)


def test_the_bootstrap_agrees_with_scipy() -> None:
    values = np.random.default_rng(1).choice([-1.0, 0.0, 0.5, 1.0], size=200)
    theirs = stats.bootstrap(
        (values,), np.mean, method="percentile", n_resamples=4000, rng=np.random.default_rng(2)
    )

    ours = bootstrap_interval(values)

    assert ours == pytest.approx(tuple(theirs.confidence_interval), abs=0.02)


@given(BITS)
def test_mcnemar_agrees_with_the_binomial_test_of_scipy(bits: list[tuple[bool, bool]]) -> None:
    first, second = (np.array(column, np.float64) for column in zip(*bits, strict=True))
    gained, lost = int((second > first).sum()), int((first > second).sum())
    theirs = stats.binomtest(gained, gained + lost).pvalue if gained + lost else 1.0

    assert mcnemar(first, second) == pytest.approx(theirs)
    assert mcnemar(first, second) == mcnemar(second, first)


def test_mcnemar_works_with_many_mentions() -> None:
    first, second = np.zeros(100_000), np.zeros(100_000)
    first[:2000], second[2000:4100] = 1, 1

    assert mcnemar(first, second) == pytest.approx(stats.binomtest(2000, 4100).pvalue)


def test_mcnemar_rejects_means_over_runs() -> None:
    with pytest.raises(ValueError, match="one run of each"):
        mcnemar(np.array([0.5]), np.array([1.0]))


def test_the_randomisation_test_agrees_with_the_permutation_test_of_scipy() -> None:
    differences = np.random.default_rng(3).choice([-1.0, -0.5, 0.0, 0.5, 1.0, 1.0], size=40)
    theirs = stats.permutation_test(
        (differences,),
        lambda values, axis: values.mean(axis=axis),
        permutation_type="samples",
        vectorized=True,
        n_resamples=20_000,
        rng=np.random.default_rng(4),
    )

    assert randomisation_test(differences) == pytest.approx(theirs.pvalue, abs=0.015)


def test_systems_that_answer_alike_do_not_differ() -> None:
    assert randomisation_test(np.zeros(10)) == 1
    assert mcnemar(np.ones(3), np.ones(3)) == 1
    assert bootstrap_interval(np.zeros(10)) == (0, 0)


def test_the_smallest_p_counts_the_observed_assignment() -> None:
    assert randomisation_test(np.ones(500), samples=99) == 0.01


@given(st.lists(st.sampled_from([-1.0, 0.0, 1.0]), min_size=1, max_size=30), st.integers(0, 5))
def test_the_same_seed_gives_the_same_results(values: list[float], seed: int) -> None:
    given_values = np.array(values)

    assert bootstrap_interval(given_values, seed=seed) == bootstrap_interval(given_values, seed=seed)
    low, high = bootstrap_interval(given_values, seed=seed)
    assert given_values.min() <= low <= high <= given_values.max()
    assert 0 < randomisation_test(given_values, seed=seed) <= 1


@given(st.lists(st.floats(0, 1), min_size=2, max_size=12), st.floats(0, 1))
def test_the_t_test_agrees_with_scipy(values: list[float], mean: float) -> None:
    runs = np.array(values)
    assume(runs.std() > 1e-6)

    assert t_test(runs, mean) == pytest.approx(stats.ttest_1samp(runs, mean).pvalue, abs=1e-9)


def test_equal_runs_differ_significantly_from_any_other_mean() -> None:
    assert t_test(np.array([0.5, 0.5]), 0.5) == 1
    assert t_test(np.array([0.5, 0.5]), 0.4) == 0


def test_a_t_test_needs_two_runs() -> None:
    with pytest.raises(ValueError, match="needs at least two runs"):
        t_test(np.array([0.5]), 0.4)
