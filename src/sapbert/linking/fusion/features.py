"""Features of a mention and the name of a candidate.

A feature is a number of about -1 to 1. It depends on the mention and its own candidates only. Overlaps are
computed on hashed items of a mention and a name: words and character trigrams. A table per mention says which
of its items has a hash; a lookup of the items of a name gives what share of the mention the name covers
(recall) and what share of the name is in the mention (precision).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from sapbert.linking.fusion.tokens import TokenArrays, tokenize
from sapbert.linking.fusion.words import WordTable
from sapbert.protocols import RerankRequest

Floats = NDArray[np.float32]
Integers = NDArray[np.int64]

KINDS: Final = ("abbreviation", "brand", "lay", "translation")
"""Kinds of names that have a feature."""
FEATURES: Final = (
    "score",
    "lead",
    "rank",
    "equal",
    "same words",
    "word recall",
    "word precision",
    "core recall",
    "core precision",
    "label recall",
    "label precision",
    "modifier recall",
    "modifier precision",
    "trigram recall",
    "trigram precision",
    "edit ratio",
    "edit lead",
    "common prefix",
    "length ratio",
    "short mention",
    "mention words",
    *KINDS,
    "count lead",
)
"""Names of the columns, in order."""
_BUCKETS: Final = 4096
"""Size of the table of a mention; a power of two."""
_TRIGRAM: Final = 3
_ALIGNED: Final = 63
"""Characters of a mention and of a name that are aligned."""
_MASKS: Final = 256
"""Characters that the alignment tells apart."""
_SHORT: Final = 5
"""Characters of the longest short form."""
_CHUNK: Final = 64
"""Mentions whose tables are in memory together."""
_ALMOST_ONE: Final = 1 - 1e-4


@dataclass(frozen=True, slots=True)
class _Pairs:
    """The mentions and candidate names of some requests; the texts are the mentions, then all names."""

    requests: Sequence[RerankRequest]
    tokens: TokenArrays
    owner: Integers
    """Mention of each name.  # (names,)"""
    starts: Integers
    """First name of each mention that has names."""

    @classmethod
    def of(cls, requests: Sequence[RerankRequest]) -> _Pairs:
        counts = np.array([len(request.names) for request in requests])
        names = [name for request in requests for name in request.names]
        tokens = tokenize([request.mention for request in requests] + names)
        starts = np.cumsum(counts) - counts
        return cls(requests, tokens, np.repeat(np.arange(len(requests)), counts), starts[counts > 0])

    @property
    def mentions(self) -> int:
        return len(self.requests)

    def per_name(self, values: NDArray[Any], texts: Integers) -> Floats:
        """Sum the values of items per name.  # (names,)"""
        return np.bincount(texts - self.mentions, values, len(self.owner)).astype(np.float32)

    def name_hashes(self) -> NDArray[np.uint64]:
        """Return the hash of each name.  # (names,)"""
        starts, stops = self.tokens.text_starts, self.tokens.text_stops
        return self.tokens.span_hashes(starts[self.mentions :], stops[self.mentions :])

    def lead(self, values: Floats) -> Floats:
        """Return each value minus the largest of the same mention.  # (names,)"""
        largest = np.zeros(self.mentions, np.float32)
        largest[self.owner[self.starts]] = np.maximum.reduceat(values, self.starts)
        return values - largest[self.owner]


def features(requests: Sequence[RerankRequest], words: WordTable) -> Floats:
    """Return the features of all names of all requests.  # (names, features)"""
    chunks = [requests[start : start + _CHUNK] for start in range(0, len(requests), _CHUNK)]
    parts = [_chunk_features(chunk, words) for chunk in chunks if any(request.names for request in chunk)]
    return np.concatenate(parts) if parts else np.empty((0, len(FEATURES)), np.float32)


def _chunk_features(requests: Sequence[RerankRequest], words: WordTable) -> Floats:
    pairs = _Pairs.of(requests)
    overlap = _overlap_features(pairs, words)
    columns = {
        **overlap,
        **_search_features(pairs),
        **_alignment_features(pairs),
        **_length_features(pairs),
        **_kind_features(pairs, overlap["word precision"] > _ALMOST_ONE),
    }
    table = np.empty((len(pairs.owner), len(FEATURES)), np.float32)
    for number, name in enumerate(FEATURES):
        table[:, number] = columns[name]
    return table


def _search_features(pairs: _Pairs) -> dict[str, Floats]:
    scores = np.array([score for request in pairs.requests for score in request.scores], np.float32)
    first = np.zeros(pairs.mentions, np.int64)
    first[pairs.owner[pairs.starts]] = pairs.starts
    rank = np.arange(len(scores)) - first[pairs.owner]
    return {"score": scores, "lead": pairs.lead(scores), "rank": -np.log1p(rank) / 4}


def _overlap_features(pairs: _Pairs, words: WordTable) -> dict[str, Floats]:
    tokens = pairs.tokens
    facts = words.facts(tokens)
    overlap = _Overlap(pairs, facts.hashes, tokens.texts)
    weights = {
        "word": facts.weights,
        "core": np.where(facts.modifier, np.float32(0), facts.weights),
        "label": facts.label.astype(np.float32),
        "modifier": facts.modifier.astype(np.float32),
    }
    columns = {}
    for name, weight in weights.items():
        columns[f"{name} recall"], columns[f"{name} precision"] = overlap.shares(weight)
    same = np.minimum(columns["word recall"], columns["word precision"]) > _ALMOST_ONE
    token, hashes = _trigrams(tokens)
    trigrams = _Overlap(pairs, hashes, tokens.texts[token])
    recall, precision = trigrams.shares((facts.weights / np.sqrt(tokens.lengths)).astype(np.float32)[token])
    return {
        **columns,
        "same words": same.astype(np.float32),
        "trigram recall": recall,
        "trigram precision": precision,
    }


class _Overlap:
    """Which items of names occur in their mention."""

    def __init__(self, pairs: _Pairs, hashes: NDArray[np.uint64], texts: Integers) -> None:
        bucket = (hashes >> np.uint64(65 - _BUCKETS.bit_length())).astype(np.int64)
        of_mention = int(np.searchsorted(texts, pairs.mentions))  # texts are sorted
        table = np.full((pairs.mentions, _BUCKETS), -1, np.int32)
        table[texts[:of_mention], bucket[:of_mention]] = np.arange(of_mention)
        self._pairs, self._of_mention = pairs, of_mention
        self._texts = texts
        item = table[pairs.owner[texts[of_mention:] - pairs.mentions], bucket[of_mention:]]
        self._hit = item >= 0
        self._item = np.maximum(item, 0)
        """Item of the mention that each item of a name equals."""
        self._distinct = np.zeros(of_mention, np.float32)
        self._distinct[table[texts[:of_mention], bucket[:of_mention]]] = 1

    def shares(self, weights: Floats) -> tuple[Floats, Floats]:
        """Return recall and precision of each name by the weights of items; 1 if there is nothing to find."""
        pairs, texts = self._pairs, self._texts[self._of_mention :]
        of_mention, of_name = weights[: self._of_mention], weights[self._of_mention :]
        totals = np.bincount(
            self._texts[: self._of_mention], of_mention * self._distinct, pairs.mentions
        ).astype(np.float32)
        found = of_mention[self._item] * self._hit if len(of_mention) else np.zeros(len(of_name))
        recall = np.minimum(_share(pairs.per_name(found, texts), totals[pairs.owner]), 1)
        return recall, _share(pairs.per_name(of_name * self._hit, texts), pairs.per_name(of_name, texts))


def _share(part: Floats, whole: Floats) -> Floats:
    share = np.ones(len(part), np.float32)
    np.divide(part, whole, out=share, where=whole > 0)
    return share


def _trigrams(tokens: TokenArrays) -> tuple[Integers, NDArray[np.uint64]]:
    """Return the token and the hash of each character trigram; the first and last of a token are marked."""
    lengths = tokens.lengths
    token = np.repeat(np.arange(len(lengths)), lengths)
    place = np.arange(len(token)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    # The trigram around each character; at the edges of a token it has two characters.
    start = tokens.starts[token] + np.maximum(place - 1, 0)
    stop = tokens.starts[token] + np.minimum(place + _TRIGRAM - 1, lengths[token])
    return token, tokens.span_hashes(start, stop) + (place == 0).astype(np.uint64)


def _alignment_features(pairs: _Pairs) -> dict[str, Floats]:
    tokens, mentions, owner = pairs.tokens, pairs.mentions, pairs.owner
    lengths = np.minimum(tokens.text_stops - tokens.text_starts, _ALIGNED)
    mention_codes = _character_codes(tokens, tokens.text_starts[:mentions], lengths[:mentions])
    name_codes = _character_codes(tokens, tokens.text_starts[mentions:], lengths[mentions:])
    common = _common_subsequence(mention_codes, name_codes, owner)
    both = lengths[:mentions][owner] + lengths[mentions:]
    width = min(mention_codes.shape[1], name_codes.shape[1])
    agreeing = (mention_codes[owner, :width] == name_codes[:, :width]) & (name_codes[:, :width] > 0)
    prefix = np.logical_and.accumulate(agreeing, axis=1).sum(axis=1)
    ratio = (2 * common / np.maximum(both, 1)).astype(np.float32)
    return {
        "edit ratio": ratio,
        "edit lead": pairs.lead(ratio),
        "equal": (2 * prefix >= both).astype(np.float32),
        "common prefix": (2 * prefix / np.maximum(both, 1)).astype(np.float32),
    }


def _character_codes(tokens: TokenArrays, starts: Integers, lengths: Integers) -> NDArray[np.uint8]:
    """Return the first characters of texts, each as a number from 1; 0 after the end.  # (texts, longest)"""
    places = np.arange(int(lengths.max(initial=1)))
    at = np.minimum(starts[:, np.newaxis] + places, len(tokens.characters) - 1)
    codes = tokens.characters[at] % (_MASKS - 1) + 1
    return np.where(places < lengths[:, np.newaxis], codes, 0).astype(np.uint8)


def _common_subsequence(
    mentions: NDArray[np.uint8], names: NDArray[np.uint8], owner: Integers
) -> NDArray[np.int64]:
    """Return the length of the longest common subsequence of each name and its mention.

    Bit-parallel: bit i of `state` is 0 if character i of the mention ends a longer subsequence.
    """
    masks = np.zeros((len(mentions), _MASKS), np.uint64)
    everyone = np.arange(len(mentions))
    for place in range(mentions.shape[1]):
        masks[everyone, mentions[:, place]] |= np.uint64(1 << place)
    masks[:, 0] = 0
    matches = masks[owner, names.T]  # (longest name, names)
    state = np.full(len(owner), np.iinfo(np.uint64).max, np.uint64)
    for match in matches:
        match &= state
        state = (state + match) | (state - match)
    return np.bitwise_count(~state).astype(np.int64)


def _length_features(pairs: _Pairs) -> dict[str, Floats]:
    tokens, mentions, owner = pairs.tokens, pairs.mentions, pairs.owner
    lengths = (tokens.text_stops - tokens.text_starts).astype(np.float32)
    words = np.bincount(tokens.texts, minlength=len(lengths))[:mentions].astype(np.float32)
    ratio = np.log((lengths[mentions:] + 1) / (lengths[:mentions][owner] + 1))
    return {
        "length ratio": ratio / 2,
        "short mention": (lengths[:mentions] <= _SHORT).astype(np.float32)[owner],
        "mention words": np.log1p(words)[owner] / 3,
    }


def _kind_features(pairs: _Pairs, inside: NDArray[np.bool_]) -> dict[str, Floats]:
    """Return the features of kinds; `inside` is whether all words of a name are in the mention."""
    kinds = [kind for request in pairs.requests for kind in request.kinds or ("",) * len(request.names)]
    counts = [count for request in pairs.requests for count in request.counts or (0,) * len(request.names)]
    columns = {kind: np.array([each == kind for each in kinds], np.float32) for kind in KINDS}
    # Counts are comparable between the meanings of one short form only.
    _, form = np.unique(
        np.stack([pairs.owner.astype(np.uint64), pairs.name_hashes()]), axis=1, return_inverse=True
    )
    uses = (np.log1p(counts) / 10).astype(np.float32)
    most = np.zeros(len(uses), np.float32)
    np.maximum.at(most, form, uses)
    return {
        **columns,
        # A short form that is not in the mention says nothing about it.
        "abbreviation": columns["abbreviation"] * np.where(inside, np.float32(1), np.float32(-1)),
        "count lead": uses - most[form],
    }
