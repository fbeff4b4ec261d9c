from __future__ import annotations

import tracemalloc
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sapbert.pairs.sampling import Ints, draw
from sapbert.pairs.settings import Languages

Concepts = list[list[int]]
"""The languages of the names of each concept, ascending."""
Pair = tuple[int, int]

vocabularies = st.lists(
    st.lists(st.integers(0, 3), min_size=1, max_size=12).map(sorted), min_size=1, max_size=8
)
rules = st.sampled_from(Languages)
seeds = st.integers(0, 2**64 - 1)


def columns(vocabulary: Concepts) -> tuple[Ints, Ints]:
    concepts = [number for number, languages in enumerate(vocabulary) for _ in languages]
    languages = [language for languages in vocabulary for language in languages]
    return np.array(concepts, np.int64), np.array(languages, np.int64)


def drawn(
    vocabulary: Concepts, *, rule: Languages = Languages.ANY, limit: int, seed: int = 33, first: int = 0
) -> list[Pair]:
    rows = draw(
        *columns(vocabulary),
        keys=lambda concepts: (concepts + first).astype(np.uint64),
        rule=rule,
        limit=limit,
        seed=seed,
    )
    assert rows.shape == (len(rows), 2)
    return [(int(left), int(right)) for left, right in rows]


def allows(rule: Languages, same_language: bool) -> bool:
    return rule is Languages.ANY or same_language == (rule is Languages.WITHIN)


def offered(vocabulary: Concepts, rule: Languages) -> list[list[Pair]]:
    """List every pair of each concept that a rule allows."""
    concepts, languages = columns(vocabulary)
    return [
        [
            (int(a), int(b))
            for a, b in combinations(np.flatnonzero(concepts == number), 2)
            if allows(rule, languages[a] == languages[b])
        ]
        for number in range(len(vocabulary))
    ]


def test_a_concept_of_three_names_makes_three_pairs() -> None:
    assert drawn([[0, 0, 0]], limit=50) == [(0, 1), (0, 2), (1, 2)]


def test_the_language_rules_split_the_pairs() -> None:
    english_and_spanish = [[0, 0, 1, 1]]

    assert drawn(english_and_spanish, rule=Languages.WITHIN, limit=50) == [(0, 1), (2, 3)]
    assert drawn(english_and_spanish, rule=Languages.ACROSS, limit=50) == [(0, 2), (1, 2), (0, 3), (1, 3)]


def test_a_name_alone_makes_no_pair() -> None:
    assert drawn([[0], [0], [1]], limit=50) == []


def test_no_names_make_no_pairs() -> None:
    assert drawn([], limit=50) == []


def test_the_pairs_of_a_fixed_example_never_change() -> None:
    # A change of the random numbers changes all training data: announce it in the changelog.
    vocabulary = [[0] * 6, [0, 0], [0, 0, 1, 1, 2], [0] * 9]

    assert drawn(vocabulary, limit=4, seed=33) == [
        (1, 3),
        (0, 5),
        (2, 5),
        (4, 5),
        (6, 7),
        (9, 10),
        (8, 11),
        (10, 11),
        (10, 12),
        (17, 19),
        (18, 19),
        (17, 20),
        (17, 21),
    ]
    assert drawn(vocabulary, limit=3, seed=33, rule=Languages.ACROSS) == [(8, 11), (9, 11), (10, 12)]


@given(vocabularies, rules, seeds)
def test_all_pairs_are_drawn_if_they_fit_the_limit(vocabulary: Concepts, rule: Languages, seed: int) -> None:
    pairs = drawn(vocabulary, rule=rule, limit=66, seed=seed)

    assert len(pairs) == len(set(pairs))
    assert set(pairs) == {pair for concept in offered(vocabulary, rule) for pair in concept}


@given(vocabularies, rules, seeds, st.integers(1, 70))
def test_pairs_are_distinct_allowed_and_up_to_the_limit(
    vocabulary: Concepts, rule: Languages, seed: int, limit: int
) -> None:
    pairs = drawn(vocabulary, rule=rule, limit=limit, seed=seed)

    assert len(pairs) == len(set(pairs))
    for concept in offered(vocabulary, rule):
        assert len(set(pairs) & set(concept)) == min(limit, len(concept))
    assert len(pairs) == sum(min(limit, len(concept)) for concept in offered(vocabulary, rule))


@given(vocabularies, rules, seeds)
def test_pairs_are_in_the_order_of_their_concepts(vocabulary: Concepts, rule: Languages, seed: int) -> None:
    concepts = columns(vocabulary)[0]

    of_pairs = [int(concepts[left]) for left, _ in drawn(vocabulary, rule=rule, limit=5, seed=seed)]

    assert of_pairs == sorted(of_pairs)


@given(vocabularies, rules, seeds, st.data())
def test_pairs_do_not_depend_on_the_parts_of_the_vocabulary(
    vocabulary: Concepts, rule: Languages, seed: int, data: st.DataObject
) -> None:
    cut = data.draw(st.integers(0, len(vocabulary)))
    head, tail = vocabulary[:cut], vocabulary[cut:]
    shift = sum(len(languages) for languages in head)

    first = drawn(head, rule=rule, limit=3, seed=seed)
    rest = drawn(tail, rule=rule, limit=3, seed=seed, first=cut)

    whole = drawn(vocabulary, rule=rule, limit=3, seed=seed)
    assert whole == first + [(left + shift, right + shift) for left, right in rest]


@given(st.integers(0, 2**64 - 2))
def test_another_seed_draws_other_pairs(seed: int) -> None:
    vocabulary = [[0] * 12] * 20

    assert drawn(vocabulary, limit=5, seed=seed) != drawn(vocabulary, limit=5, seed=seed + 1)


def frequencies(
    vocabulary: Concepts, rule: Languages, limit: int, seed: int
) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Count how often each pair of a concept is drawn, over many equal concepts."""
    size = len(vocabulary[0])
    counts: dict[Pair, int] = dict.fromkeys(offered(vocabulary[:1], rule)[0], 0)
    for left, right in drawn(vocabulary, rule=rule, limit=limit, seed=seed):
        counts[left % size, right % size] += 1
    return np.array(list(counts.values()))


@pytest.mark.parametrize("rule", list(Languages))
@pytest.mark.parametrize("seed", [0, 33, 2**63])
def test_every_pair_is_drawn_equally_often(rule: Languages, seed: int) -> None:
    concepts, limit = 20_000, 3
    counts = frequencies([[0, 0, 0, 1, 1]] * concepts, rule, limit, seed)

    cells = len(counts)
    expected = concepts * limit / cells
    # Without replacement, counts vary less than those of a multinomial; the last factor corrects it.
    chi_square = ((counts - expected) ** 2 / expected).sum() * (cells - 1) / (cells - limit)
    degrees = cells - 1
    assert chi_square < degrees + 4 * np.sqrt(2 * degrees)
    assert counts.sum() == concepts * limit


def test_pairs_of_a_concept_are_drawn_independently() -> None:
    concepts = 20_000
    pairs = drawn([[0] * 5] * concepts, limit=2)

    together: dict[frozenset[Pair], int] = {}
    for first, second in zip(pairs[::2], pairs[1::2], strict=True):
        key = frozenset((left % 5, right % 5) for left, right in (first, second))
        together[key] = together.get(key, 0) + 1

    # 45 couples of the 10 pairs, each expected 444 times.
    counts = np.array(list(together.values()))
    assert len(counts) == 45
    expected = concepts / 45
    assert ((counts - expected) ** 2 / expected).sum() < 44 + 4 * np.sqrt(2 * 44)


def test_pairs_reach_every_part_of_a_large_concept() -> None:
    pairs = np.array(drawn([[0] * 30_000], limit=2_000))

    # In a uniform sample, the larger row of a pair is in the upper half three times in four.
    assert 0.70 < (pairs[:, 1] >= 15_000).mean() < 0.80
    assert pairs.min() < 100
    assert pairs.max() > 29_900


def test_pairs_of_a_concept_with_30_000_names_are_not_listed() -> None:
    concepts, languages = columns([[0] * 30_000])
    tracemalloc.start()

    pairs = draw(
        concepts,
        languages,
        keys=lambda concepts: concepts.astype(np.uint64),
        rule=Languages.ANY,
        limit=50,
        seed=33,
    )

    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len({tuple(pair) for pair in pairs.tolist()}) == 50
    # All 449,985,000 pairs would need gigabytes.
    assert peak < 10 << 20


def test_a_limit_that_is_never_reached_costs_nothing() -> None:
    assert len(drawn([[0] * 30] * 3, limit=10**12)) == 3 * 435
