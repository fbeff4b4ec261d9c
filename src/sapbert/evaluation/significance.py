"""Is one system better than another, or was it luck? Tests on the same mentions, answered by both.

All of them look at the differences mention by mention, because two systems fail on the same hard mentions and
their intervals alone say little. Several runs of a system (seeds) count by their mean on each mention.

The bootstrap and the randomisation are drawn without a loop over mentions: a mention's difference has few
values (-1, 0, 1 for single runs), so a resample is a draw of how often each value comes. That is the same
distribution, and a million mentions cost no more than a hundred.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

SAMPLES = 10_000
CONFIDENCE_LEVEL = 0.95


class Interval(NamedTuple):
    """Where a mean lies, with probability `CONFIDENCE_LEVEL`."""

    low: float
    high: float


def bootstrap_interval(values: NDArray[np.float64], *, seed: int = 0, samples: int = SAMPLES) -> Interval:
    """Return the percentile interval of the mean of `values`, one a mention, resampled with replacement.

    Of right or wrong it is that of an accuracy; of differences between two systems, the paired interval.
    """
    if not len(values):
        raise ValueError("there is no interval without values")
    levels, counts = np.unique(values, return_counts=True)
    drawn = np.random.default_rng(seed).multinomial(len(values), counts / len(values), size=samples)
    means = drawn @ levels / len(values)  # (samples,)
    low, high = np.quantile(means, [(1 - CONFIDENCE_LEVEL) / 2, (1 + CONFIDENCE_LEVEL) / 2])
    return Interval(float(low), float(high))


def mcnemar(first: NDArray[np.float64], second: NDArray[np.float64]) -> float:
    """Return the exact two-sided p that two systems differ, from the mentions only one of them has right."""
    if not set(np.unique(np.concatenate([first, second]))) <= {0.0, 1.0}:
        raise ValueError("McNemar's test takes right or wrong, so one run of each system")
    gained, lost = int((second > first).sum()), int((first > second).sum())
    total, fewer = gained + lost, min(gained, lost)
    # In logarithms, because 2 ** total is no float beyond a thousand mentions.
    halves = total * math.log(2)
    tail = sum(math.exp(_log_choose(total, count) - halves) for count in range(fewer + 1))
    return min(1.0, 2 * tail)


def randomisation_test(differences: NDArray[np.float64], *, seed: int = 0, samples: int = SAMPLES) -> float:
    """Return the two-sided p that the mean difference is zero, by swapping the systems mention by mention.

    It is never zero: the observed assignment is one of those that could have been drawn.
    """
    sizes, counts = np.unique(np.abs(differences), return_counts=True)
    heads = np.random.default_rng(seed).binomial(counts, 0.5, size=(samples, len(counts)))
    sums = (2 * heads - counts) @ sizes  # (samples,)
    # Sums of the same differences in another order differ in the last digits.
    extreme = np.abs(sums) >= abs(float(differences.sum())) - 1e-9
    return float(1 + extreme.sum()) / (samples + 1)


def t_test(values: NDArray[np.float64], mean: float) -> float:
    """Return the two-sided p that `values`, one a run, are drawn around `mean`: Student's, for one sample.

    It is the paper's test, against a figure that others published. It knows how much seeds differ and not how
    few mentions there are, so where both systems were measured here `randomisation` says more.
    """
    freedom = len(values) - 1
    if freedom < 1:
        raise ValueError("a t-test needs two runs")
    distance = abs(float(values.mean()) - mean)
    error = float(values.std(ddof=1)) / math.sqrt(len(values))
    if error == 0:
        return 0.0 if distance else 1.0
    # The closed form for whole degrees of freedom, as Student gave it: a finite series in the angle.
    angle = math.atan(distance / error / math.sqrt(freedom))
    first, term = (2, math.cos(angle)) if freedom % 2 else (1, 1.0)
    total = 0.0
    for step in range(first, freedom, 2):
        total += term
        term *= math.cos(angle) ** 2 * step / (step + 1)
    inside = (angle + math.sin(angle) * total) * 2 / math.pi if freedom % 2 else math.sin(angle) * total
    return max(0.0, 1 - inside)


def _log_choose(n: int, k: int) -> float:
    return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)
