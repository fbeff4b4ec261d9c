"""What the ranker knows about single words: how common they are, and which are modifiers or labels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from sapbert.linking.fusion.tokens import TokenArrays, hash_words


def _split(words: str) -> tuple[str, ...]:
    return tuple(words.split())


MODIFIERS: Final = _split(
    "acute active advanced bilateral both chronic controlled current day days decompensated early end ended "
    "episode episodes exac exacerbation extreme former h history ho hx known l late left level levels lower "
    "lt marked mild minor moderate my new no non o old onset ongoing p past patient persistent poorly "
    "possible post previous prior probable r recent recurrent resolved right rt s severe severely side sided "
    "since sl slight small stable stage status subacute sudden suspected terrible test uncontrolled "
    "unilateral unspecified upper very week weeks without worsening worst x year years"
)
"""Words that describe a finding and seldom change its concept: side, severity, course, history, negation."""
STOPWORDS: Final = _split("a an and as at by due for from in is of on or the to with")
_GREEK: Final = _split("alpha beta gamma delta epsilon zeta kappa lambda omega")
_ROMAN: Final = _split("i ii iii iv v vi vii viii ix x xi xii xiii xiv xv")
_STOPWORD_WEIGHT: Final = 0.05


class WordFacts(NamedTuple):
    """What is known about some tokens; all (tokens,)."""

    hashes: NDArray[np.uint64]
    """Hash of each token; a Roman numeral has that of its number."""
    weights: NDArray[np.float32]
    """Share of the inverse document frequency of a rare word."""
    modifier: NDArray[np.bool_]
    label: NDArray[np.bool_]
    """Whether a token is a number, a single letter or a Greek letter: they tell similar names apart."""


@dataclass(frozen=True, slots=True)
class WordTable:
    """Facts about words that are common or have a meaning of their own; all other words are rare."""

    words: Mapping[str, float]
    """Weights of common words, between 0 and 1."""
    _hashes: NDArray[np.uint64]
    """Hash of each word in this table, sorted."""
    _replacements: NDArray[np.uint64]
    _weights: NDArray[np.float32]
    _modifier: NDArray[np.bool_]
    _label: NDArray[np.bool_]

    @classmethod
    def of(cls, words: Mapping[str, float]) -> Self:
        """Create a table of common words with their weights."""
        weights = {**words, **dict.fromkeys(STOPWORDS, _STOPWORD_WEIGHT)}
        numbers = {word: str(number) for number, word in enumerate(_ROMAN, 1)}
        known = list(dict.fromkeys([*weights, *MODIFIERS, *_GREEK, *_ROMAN]))
        hashes, first = np.unique(hash_words(known), return_index=True)
        known = [known[place] for place in first]
        return cls(
            words,
            hashes,
            hash_words([numbers.get(word, word) for word in known]),
            np.array([weights.get(word, 1.0) for word in known], np.float32),
            np.isin(known, MODIFIERS),
            np.isin(known, [*_GREEK, *_ROMAN]),
        )

    def facts(self, tokens: TokenArrays) -> WordFacts:
        """Look up all tokens."""
        place = np.minimum(np.searchsorted(self._hashes, tokens.hashes), len(self._hashes) - 1)
        known = self._hashes[place] == tokens.hashes
        first = tokens.characters[tokens.starts]
        digits = (tokens.characters >= ord("0")) & (tokens.characters <= ord("9"))
        before = np.concatenate([[0], np.cumsum(digits)])
        has_digit = before[tokens.starts + tokens.lengths] > before[tokens.starts]
        return WordFacts(
            np.where(known, self._replacements[place], tokens.hashes),
            np.where(known, self._weights[place], np.float32(1)),
            known & self._modifier[place],
            has_digit | (known & self._label[place]) | ((tokens.lengths == 1) & (first < 128)),
        )
