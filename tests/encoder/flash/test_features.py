"""Features against an obvious implementation that cuts Python strings."""

from __future__ import annotations

import importlib
import unicodedata
from collections import Counter
from itertools import groupby, pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sapbert.encoder.flash import characters
from sapbert.encoder.flash.features import FeatureKind, FeatureSpec, FeatureTable, features, word_features
from sapbert.errors import ConfigError

BITS = 22
"""So many rows that different features of a few names hardly share one."""


def spec(kind: FeatureKind, length: int = 0) -> FeatureSpec:
    return FeatureSpec((FeatureTable(kind, BITS, length),))


def rows(name: str, kind: FeatureKind, length: int = 0) -> Counter[int]:
    return Counter(features([name], spec(kind, length)).ids.tolist())


def plain(name: str) -> str:
    decomposed = unicodedata.normalize("NFD", name.lower())
    return "".join(character for character in decomposed if not "\u0300" <= character < "\u0370")


def kind_of(character: str) -> str:
    if "\u4e00" <= character < "\ua000":
        return "ideograph"
    return unicodedata.category(character)[0]


def tokens(name: str) -> list[str]:
    result: list[str] = []
    for kind, run in groupby(plain(name), kind_of):
        word = "".join(run)
        if kind == "ideograph":
            result.extend(word)
        elif kind in "LN":
            result.append(word)
    return result


def ngrams(name: str, length: int) -> list[str]:
    framed = [f" {token} " for token in tokens(name)]
    return [token[at : at + length] for token in framed for at in range(len(token) - length + 1)]


NAMES = st.lists(st.text(alphabet="abAé12 -/ü心血.", max_size=14), max_size=6)


@given(names=NAMES)
def test_words_and_pairs_equal_those_of_a_loop(names: list[str]) -> None:
    words = features(names, spec(FeatureKind.WORD))
    pairs = features(names, spec(FeatureKind.PAIR))
    row = {token: rows(token, FeatureKind.WORD) for name in names for token in tokens(name)}
    for number, name in enumerate(names):
        own = words.ids[words.offsets[number] : words.offsets[number + 1]]
        assert Counter(own.tolist()) == sum((row[token] for token in tokens(name)), Counter())
        expected = Counter(pairwise(tokens(name))).values()
        own = pairs.ids[pairs.offsets[number] : pairs.offsets[number + 1]]
        assert sorted(Counter(own.tolist()).values()) == sorted(expected)


@given(names=NAMES, length=st.integers(3, 6))
def test_ngrams_equal_those_of_a_loop(names: list[str], length: int) -> None:
    found = features(names, spec(FeatureKind.CHARACTERS, length))
    seen: dict[str, int] = {}
    for number, name in enumerate(names):
        own = found.ids[found.offsets[number] : found.offsets[number + 1]].tolist()
        for gram, row in zip(ngrams(name, length), own, strict=True):
            assert seen.setdefault(gram, row) == row
    assert len(set(seen.values())) == len(seen)


@given(names=NAMES)
def test_features_do_not_depend_on_the_other_names(names: list[str]) -> None:
    tables = FeatureSpec(tuple(FeatureTable(kind, 12, 4 if "s" in kind[-1] else 0) for kind in FeatureKind))
    together = features(names, tables)
    alone = [features([name], tables).ids for name in names]
    np.testing.assert_array_equal(together.ids, np.concatenate([*alone, np.zeros(0, np.int32)]))
    np.testing.assert_array_equal(np.diff(together.offsets), list(map(len, alone)))


@given(names=NAMES)
def test_features_by_word_are_those_of_the_names(names: list[str]) -> None:
    tables = FeatureSpec(tuple(FeatureTable(kind, 12, 4 if "s" in kind[-1] else 0) for kind in FeatureKind))
    whole, found = features(names, tables), word_features(names, tables)
    for number in range(len(names)):
        words = found.places[found.offsets[number] : found.offsets[number + 1]].tolist()
        of_words = [found.words.ids[slice(*found.words.offsets[word : word + 2])] for word in words]
        of_pairs = found.pairs.ids[slice(*found.pairs.offsets[number : number + 2])]
        together = np.concatenate([*of_words, of_pairs]).tolist()
        own = whole.ids[slice(*whole.offsets[number : number + 2])].tolist()
        assert sorted(together) == sorted(own)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("haemorrhage", "hemorrhage"),
        ("инфаркт", "infarkt"),
        ("phthisis", "ftisis"),
        ("diarrhoea", "diarrea"),
        ("Ampicillin", "ampicilin"),
    ],
)
def test_spellings_that_sound_alike_share_their_sounds(one: str, other: str) -> None:
    assert rows(one, FeatureKind.SOUNDS) == rows(other, FeatureKind.SOUNDS)
    assert rows(one, FeatureKind.WORD) != rows(other, FeatureKind.WORD)


def test_features_do_not_depend_on_characters_seen_before() -> None:
    features(["a b"], spec(FeatureKind.SOUNDS, 4))
    after_a_space = rows("fever", FeatureKind.SOUNDS, 4)
    importlib.reload(characters)

    assert rows("fever", FeatureKind.SOUNDS, 4) == after_a_space


def test_digits_and_single_letters_distinguish_names() -> None:
    assert rows("type 1", FeatureKind.WORD) != rows("type 2", FeatureKind.WORD)
    assert rows("vitamin b", FeatureKind.PAIR) != rows("vitamin c", FeatureKind.PAIR)


def test_a_name_without_letters_and_digits_has_no_features() -> None:
    assert features(["", " - ", "a"], spec(FeatureKind.WORD)).offsets.tolist() == [0, 0, 0, 1]


def test_a_line_feed_is_a_separator() -> None:
    assert rows("heart\nattack", FeatureKind.PAIR) == rows("heart attack", FeatureKind.PAIR)


def test_rows_are_the_same_everywhere() -> None:
    """These numbers are part of every trained encoder."""
    tables = FeatureSpec(
        (
            FeatureTable(FeatureKind.WORD, 16),
            FeatureTable(FeatureKind.PAIR, 16),
            FeatureTable(FeatureKind.CHARACTERS, 16, 4),
            FeatureTable(FeatureKind.SOUNDS, 16, 4),
        )
    )
    expected = [
        6351, 54457, 60947, 69763, 70496, 194981, 137423, 184248, 156286, 192019, 139148, 213744,
        251373, 206151, 221822, 257555, 204684, 39831,
    ]  # fmt: skip
    assert features(["Type 2 Ödem", "心"], tables).ids.tolist() == expected


def test_impossible_tables_are_refused() -> None:
    with pytest.raises(ConfigError, match="length=2"):
        FeatureTable(FeatureKind.CHARACTERS, 16, 2)
    with pytest.raises(ConfigError, match="bits=40"):
        FeatureTable(FeatureKind.WORD, 40)


def test_a_spec_survives_json() -> None:
    tables = FeatureSpec((FeatureTable(FeatureKind.WORD, 8), FeatureTable(FeatureKind.SOUNDS, 9, 4)))
    assert FeatureSpec.from_json(tables.to_json()) == tables
    assert (tables.rows, tables.starts()) == (768, [0, 256])
