"""Names to features: hashed words, pairs of neighbouring words, and character n-grams.

A feature is a row of a table. A whole batch of names is processed as one array of characters, and no
tokenizer is needed. A token is a run of letters or of digits, or one ideograph; case and accents do not
distinguish tokens, and punctuation only separates them. Digits and single letters are tokens, so "type 1" and
"type 2" differ.

`sapbert.span_hashes` hashes all substrings of a batch at once.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sapbert.encoder.flash import characters
from sapbert.encoder.flash.characters import DROPPED, END, IDEOGRAPH, IGNORED, SEPARATOR
from sapbert.errors import ConfigError
from sapbert.span_hashes import Hashes, SpanHashes

_SPACE = ord(" ")
_BITS = range(4, 25)
"""Possible sizes of a table, as powers of two."""
_LONGEST = 8
"""Characters of the longest n-gram."""


class FeatureKind(StrEnum):
    """What is hashed into a table."""

    WORD = "word"
    PAIR = "pair"
    """Two neighbouring words."""
    CHARACTERS = "characters"
    """Character n-grams of a word with a space on both sides."""
    SOUNDS = "sounds"
    """The same of the word as it sounds: "ph" as "f", other alphabets as Latin letters, no double letters."""


@dataclass(frozen=True, slots=True)
class FeatureTable:
    """One table of features."""

    kind: FeatureKind
    bits: int
    """The table has 2^bits rows."""
    length: int = 0
    """Characters of an n-gram; 0 for words and pairs, and for sounds of whole words."""

    def __post_init__(self) -> None:
        grams = self.kind in (FeatureKind.CHARACTERS, FeatureKind.SOUNDS)
        allowed = range(3 if self.kind is FeatureKind.CHARACTERS else 0, _LONGEST + 1) if grams else (0,)
        if self.bits not in _BITS or self.length not in allowed:
            raise ConfigError(f"no table of features has {self.kind}, bits={self.bits}, length={self.length}")


@dataclass(frozen=True, slots=True)
class FeatureSpec:
    """All tables of an encoder; their rows are numbered one after the other."""

    tables: tuple[FeatureTable, ...]

    @property
    def rows(self) -> int:
        """Number of rows of all tables."""
        return sum(1 << table.bits for table in self.tables)

    def starts(self) -> list[int]:
        """Return the first row of each table."""
        return list(accumulate((1 << table.bits for table in self.tables), initial=0))[:-1]

    def to_json(self) -> list[dict[str, Any]]:
        """Return the tables as JSON."""
        return [
            {"kind": table.kind.value, "bits": table.bits, "length": table.length} for table in self.tables
        ]

    @classmethod
    def from_json(cls, tables: Sequence[Mapping[str, Any]]) -> FeatureSpec:
        """Read what `to_json` returned."""
        return cls(tuple(FeatureTable(**{**table, "kind": FeatureKind(table["kind"])}) for table in tables))


class Features(NamedTuple):
    """The features of some names."""

    ids: NDArray[np.int32]
    """Rows, those of a name adjacent.  # (features,)"""
    offsets: NDArray[np.int64]
    """Where the features of each name start.  # (names + 1,)"""


def features(names: Sequence[str], spec: FeatureSpec) -> Features:
    """Return the features of each name. A name without letters and digits has none."""
    return _features(_tokenize(names), spec, tuple(FeatureKind), len(names))


class WordFeatures(NamedTuple):
    """The features of some names, those of a word only once: most belong to one word, and words repeat."""

    words: Features
    """Features of each distinct word."""
    places: NDArray[np.int64]
    """Number of the distinct word of each word of the names.  # (words of all names,)"""
    offsets: NDArray[np.int64]
    """Where the words of each name start.  # (names + 1,)"""
    pairs: Features
    """Features of each name that belong to two words."""


def word_features(names: Sequence[str], spec: FeatureSpec) -> WordFeatures:
    """Return the same features as `features`, by distinct word."""
    tokens = _tokenize(names)
    _, first, places = np.unique(
        tokens.hashes(tokens.starts, tokens.stops), return_index=True, return_inverse=True
    )
    distinct = tokens._replace(
        starts=tokens.starts[first], stops=tokens.stops[first], names=np.arange(len(first))
    )
    one_word = tuple(kind for kind in FeatureKind if kind is not FeatureKind.PAIR)
    offsets = np.searchsorted(tokens.names, np.arange(len(names) + 1))
    return WordFeatures(
        _features(distinct, spec, one_word, len(first)),
        places,
        offsets,
        _features(tokens, spec, (FeatureKind.PAIR,), len(names)),
    )


def _features(tokens: _Tokens, spec: FeatureSpec, kinds: Collection[FeatureKind], count: int) -> Features:
    """Return the features of some kinds of `count` names or distinct words."""
    tables = zip(spec.tables, spec.starts(), strict=True)
    parts = [(start, *_hashes(tokens, table)) for table, start in tables if table.kind in kinds]
    counts = [np.bincount(owners, minlength=count) for _, _, owners in parts]
    offsets = np.zeros(count + 1, np.int64)
    np.cumsum(sum(counts, np.zeros(count, np.int64)), out=offsets[1:])
    ids = np.empty(int(offsets[-1]), np.int32)
    begin = offsets[:-1].copy()
    for (start, rows, owners), number in zip(parts, counts, strict=True):
        # Within a table the features are in the order of names, so a feature's rank within its name is known.
        first = np.cumsum(number) - number
        ids[(begin - first)[owners] + np.arange(len(owners))] = rows + start
        begin += number
    return Features(ids, offsets)


def words(names: Sequence[str]) -> set[str]:
    """Return the distinct tokens of all names, without case and accents."""
    return set(_tokenize(names).text.tobytes().decode("utf-32-le", "surrogatepass").split(" ")) - {""}


class _Tokens(NamedTuple):
    """The tokens of all names in one array of characters: a space, a token, a space, …, a space."""

    text: NDArray[np.uint32]
    hashes: SpanHashes
    """Hashes substrings of the text."""
    starts: NDArray[np.int64]
    """First character of each token."""
    stops: NDArray[np.int64]
    """The space after each token."""
    names: NDArray[np.int64]
    """Number of the name that each token belongs to, ascending."""


def _tokenize(names: Sequence[str]) -> _Tokens:
    joined = "\n".join(names) + "\n"
    if joined.count("\n") != len(names):
        joined = "\n".join(name.replace("\n", " ") for name in names) + "\n"
    text = np.frombuffer(joined.encode("utf-32-le", "replace"), np.uint32)
    kinds, plain = characters.classify(text)
    if (kinds == IGNORED).any():
        kept = kinds != IGNORED
        kinds, plain = kinds[kept], plain[kept]
    inside = (kinds != SEPARATOR) & (kinds != END)
    changes = np.empty(len(kinds), np.bool_)
    changes[0] = True
    np.not_equal(kinds[1:], kinds[:-1], out=changes[1:])
    begins = inside & (changes | (kinds == IDEOGRAPH))
    owners = np.cumsum(kinds == END)[begins]
    # Each token is preceded by one space, and the last is followed by one.
    places = (np.cumsum(inside) + np.cumsum(begins) - 1)[inside]
    tidy = np.full(len(places) + len(owners) + 1, _SPACE, np.uint32)
    tidy[places] = plain[inside]
    starts = places[begins[inside]]
    stops = np.append(starts[1:], len(tidy))[: len(starts)] - 1
    return _Tokens(tidy, SpanHashes(tidy), starts, stops, owners)


def _hashes(tokens: _Tokens, table: FeatureTable) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """Return for each feature of a table its row and its name, in the order of names."""
    if table.kind is FeatureKind.SOUNDS:
        tokens = _as_sounds(tokens)
    if table.length:
        hashes, owners = _ngrams(tokens, table.length)
    else:
        hashes, owners = tokens.hashes(tokens.starts, tokens.stops), tokens.names
    if table.kind is FeatureKind.PAIR:
        neighbours = owners[1:] == owners[:-1]
        hashes = (_mix(hashes[:-1]) * np.uint64(3) + hashes[1:])[neighbours]
        owners = owners[1:][neighbours]
    return (_mix(hashes) >> np.uint64(64 - table.bits)).astype(np.int32), owners


def _ngrams(tokens: _Tokens, length: int) -> tuple[Hashes, NDArray[np.int64]]:
    """Hash all windows of `length` characters of each token with the spaces around it."""
    counts = np.maximum(tokens.stops - tokens.starts + 3 - length, 0)
    ends = np.cumsum(counts)
    begins = np.repeat(tokens.starts - 1 - (ends - counts), counts) + np.arange(ends[-1] if len(ends) else 0)
    return tokens.hashes(begins, begins + length), np.repeat(tokens.names, counts)


def _as_sounds(tokens: _Tokens) -> _Tokens:
    """Return the tokens as they sound, roughly, in Latin letters."""
    text = characters.sounds(tokens.text)
    before = np.concatenate([[_SPACE], text[:-1]])
    after = np.concatenate([text[1:], [_SPACE]])
    aspirated = (text == ord("h")) & np.isin(before, np.frombuffer("ptcrg".encode("utf-32-le"), np.uint32))
    umlaut = (after == ord("e")) & ((text == ord("a")) | (text == ord("o")))
    dropped = (text == DROPPED) | aspirated | umlaut | ((text == before) & (text != _SPACE))
    text = np.where((text == ord("p")) & (after == ord("h")), np.uint32(ord("f")), text)
    places = np.cumsum(~dropped)
    # A token's first character may be dropped: it starts where the next kept character is.
    starts = places[tokens.starts - 1]
    text = text[~dropped]
    return _Tokens(text, SpanHashes(text), starts, places[tokens.stops] - 1, tokens.names)


def _mix(hashes: Hashes) -> Hashes:
    """Let every bit of a hash depend on all others."""
    hashes = hashes ^ (hashes >> np.uint64(29))
    hashes *= np.uint64(0xBF58476D1CE4E5B9)
    hashes ^= hashes >> np.uint64(32)
    hashes *= np.uint64(0x94D049BB133111EB)
    hashes ^= hashes >> np.uint64(29)
    return hashes
