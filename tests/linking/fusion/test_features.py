"""Features of mention and name, each against a plain computation."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sapbert.linking.fusion.features import FEATURES, features
from sapbert.linking.fusion.tokens import hash_words, tokenize
from sapbert.linking.fusion.words import WordTable
from sapbert.protocols import RerankRequest

WORDS = WordTable.of({"disease": 0.25})
texts = st.text("abcs1 -ıéß\n", max_size=30) | st.text(max_size=20)
requests = st.builds(
    lambda mention, names: RerankRequest(mention, tuple(names), tuple(0.9**n for n in range(len(names)))),
    texts,
    st.lists(texts, max_size=4),
)


def feature(mention: str, name: str, column: str, **details: tuple[object, ...]) -> float:
    request = RerankRequest(mention, (name,), (0.5,), **details)  # type: ignore[arg-type]
    return float(features([request], WORDS)[0, FEATURES.index(column)])


@given(st.lists(st.text("abcs12 -,", max_size=20), min_size=1, max_size=4))
def test_tokens_are_runs_of_letters_and_digits(given: list[str]) -> None:
    tokens = tokenize(given)
    words = [(number, word) for number, text in enumerate(given) for word in re.findall(r"\w+", text)]

    assert tokens.texts.tolist() == [number for number, _ in words]
    assert tokens.hashes.tolist() == hash_words([word for _, word in words]).tolist()
    singular = {word.removesuffix("s") if len(word) > 3 else word for _, word in words}
    assert len(set(tokens.hashes.tolist())) == len(singular)


def test_a_word_of_two_tokens_has_no_hash() -> None:
    with pytest.raises(ValueError, match="one token"):
        hash_words(["heart attack"])


def test_accents_and_case_do_not_distinguish_words() -> None:
    one, other = hash_words(["Sjögren", "sjogren"]).tolist()
    assert one == other
    assert len(tokenize(["高血圧"]).hashes) == 3


@given(st.lists(requests, max_size=3))
def test_features_are_finite_and_do_not_depend_on_other_requests(given: list[RerankRequest]) -> None:
    together = features(given, WORDS)
    alone = [features([request], WORDS) for request in given]

    assert together.shape == (sum(len(request.names) for request in given), len(FEATURES))
    assert np.isfinite(together).all()
    np.testing.assert_array_equal(together, np.concatenate([np.empty((0, len(FEATURES))), *alone]))


def longest_common_subsequence(one: str, other: str) -> int:
    lengths = [0] * (len(other) + 1)
    for character in one:
        previous = lengths.copy()
        for place, against in enumerate(other):
            same = previous[place] + 1 if character == against else 0
            lengths[place + 1] = max(same, previous[place + 1], lengths[place])
    return lengths[-1]


@given(st.text("abcd ", min_size=1, max_size=63), st.text("abcd ", min_size=1, max_size=63))
def test_the_edit_ratio_is_that_of_the_longest_common_subsequence(mention: str, name: str) -> None:
    expected = 2 * longest_common_subsequence(mention, name) / (len(mention) + len(name))
    assert feature(mention, name, "edit ratio") == pytest.approx(expected)
    assert feature(mention, name, "equal") == (mention == name)


@given(st.text("abés1 -\u0130", min_size=1, max_size=30))
def test_a_name_equals_itself(text: str) -> None:
    for column in FEATURES:
        if column.endswith((" recall", " precision", "edit ratio")) or column == "equal":
            assert feature(text, text.upper(), column) == pytest.approx(1)


def test_recall_and_precision_are_shares_of_the_weight_of_words() -> None:
    assert feature("crohn disease", "crohn", "word recall") == pytest.approx(1 / 1.25)
    assert feature("crohn disease", "crohn", "word precision") == 1
    assert feature("crohn", "disease of crohn", "word precision") == pytest.approx(1 / 1.3)
    assert feature("diseases", "Disease", "same words") == 1


@pytest.mark.parametrize(
    ("mention", "name", "recall", "precision"),
    [
        ("diabetes type ii", "Diabetes Mellitus, Type 2", 1, 1),
        ("diabetes type ii", "Diabetes Mellitus, Type 1", 0, 0),
        ("hepatitis b", "Hepatitis C", 0, 0),
        ("hepatitis", "Hepatitis C", 1, 0),
        ("interferon-alpha 2b", "Interferon alpha", 0.5, 1),
    ],
)
def test_labels_tell_similar_names_apart(mention: str, name: str, recall: float, precision: float) -> None:
    assert feature(mention, name, "label recall") == recall
    assert feature(mention, name, "label precision") == precision


def test_modifiers_do_not_count_in_the_core_of_a_mention() -> None:
    assert feature("severe left asthma", "Asthma", "core recall") == 1
    assert feature("severe left asthma", "Asthma", "modifier recall") == 0
    assert feature("asthma", "Severe asthma", "modifier precision") == 0


def test_a_misspelt_word_shares_most_of_its_trigrams() -> None:
    right = feature("hypertention", "Hypertension", "trigram recall")
    assert right > 0.6 > feature("hypertention", "Commodification", "trigram recall")


def test_counts_order_the_meanings_of_a_short_form() -> None:
    names, kinds = ("RA", "RA", "RAS"), ("abbreviation", "abbreviation", "abbreviation")
    request = RerankRequest("known ra", names, (1, 1, 0.5), kinds=kinds, counts=(99, 9, 9999))
    table = features([request], WORDS)
    assert table[:, FEATURES.index("abbreviation")].tolist() == [1, 1, -1]
    first, second, other = table[:, FEATURES.index("count lead")].tolist()
    assert first == other == 0 > second


def test_no_candidates_have_no_features() -> None:
    assert features([], WORDS).shape == (0, len(FEATURES))
    assert features([RerankRequest("x", (), ())], WORDS).shape == (0, len(FEATURES))
