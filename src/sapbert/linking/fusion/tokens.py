"""Texts as arrays of characters and tokens, for many texts at once.

All texts are joined, normalized and split by one call each, so that the names of a mention cost microseconds.
A token is a run of letters and digits; each character of a script without spaces is a token of its own. A
token is identified by a 64-bit hash. A final `s` is not part of it, so that a plural equals its singular.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from sapbert.span_hashes import SpanHashes

MAX_CHARACTERS = 200
"""Characters of a text that are compared."""
_SEPARATOR = "\n"
_SPACELESS = 0x2E80
"""First code point of the scripts that are written without spaces."""
_CLASSIFIED = 0x3100
"""Code points below are separators unless they are letters or digits; those above are letters."""
_COMBINING = (0x300, 0x370)
_PLURAL = 3
"""Longest token that keeps a final `s`."""


@dataclass(frozen=True, slots=True)
class TokenArrays:
    """The characters and tokens of some texts."""

    characters: NDArray[np.uint32]
    """Code points of all texts, without accents and in lower case; punctuation is a space."""
    text_starts: NDArray[np.int64]
    """First character of each text.  # (texts,)"""
    text_stops: NDArray[np.int64]
    starts: NDArray[np.int64]
    """First character of each token.  # (tokens,)"""
    lengths: NDArray[np.int64]
    """Characters of each token, with a final s.  # (tokens,)"""
    hashes: NDArray[np.uint64]
    """Identity of each token.  # (tokens,)"""
    texts: NDArray[np.int64]
    """Text of each token.  # (tokens,)"""
    spans: SpanHashes
    """Hashes substrings of the characters."""

    def span_hashes(self, starts: NDArray[np.int64], stops: NDArray[np.int64]) -> NDArray[np.uint64]:
        """Return the hash of the characters from each start to each stop."""
        return _span_hashes(self.spans, starts, stops)


def tokenize(texts: Sequence[str]) -> TokenArrays:
    """Split texts into tokens."""
    joined = _SEPARATOR.join([text[:MAX_CHARACTERS].replace(_SEPARATOR, " ") for text in texts])
    plain = unicodedata.normalize("NFKD", joined).casefold()
    codes = np.frombuffer(plain.encode("utf-32-le", errors="surrogatepass"), np.uint32)
    codes = codes[(codes < _COMBINING[0]) | (codes >= _COMBINING[1])]
    ends = np.append(np.flatnonzero(codes == ord(_SEPARATOR)), len(codes))
    inside = _letters()[np.minimum(codes, _CLASSIFIED - 1)]
    first, last = _token_bounds(codes, inside)
    # Plus 1, so that a character of number 0 counts.
    spans = SpanHashes(codes + np.uint32(1))
    plural = (codes[last - 1] == ord("s")) & (last - first > _PLURAL)
    return TokenArrays(
        characters=np.where(inside, codes, np.uint32(ord(" "))),
        text_starts=np.concatenate([[0], ends[:-1] + 1]),
        text_stops=ends,
        starts=first,
        lengths=last - first,
        hashes=_span_hashes(spans, first, last - plural),
        texts=np.searchsorted(ends, first),
        spans=spans,
    )


def hash_words(words: Sequence[str]) -> NDArray[np.uint64]:
    """Return the hash of each word, as in `TokenArrays.hashes`; a word must be one token."""
    hashes = tokenize(words).hashes
    if len(hashes) != len(words):
        raise ValueError("not every word is one token")
    return hashes


def _token_bounds(
    codes: NDArray[np.uint32], inside: NDArray[np.bool_]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the first character of each token and the one after its last."""
    single = codes >= _SPACELESS
    begins, ends = inside.copy(), inside.copy()
    joined = inside[1:] & inside[:-1] & ~single[1:] & ~single[:-1]
    begins[1:] &= ~joined
    ends[:-1] &= ~joined
    return np.flatnonzero(begins), np.flatnonzero(ends) + 1


def _span_hashes(
    spans: SpanHashes, starts: NDArray[np.int64], stops: NDArray[np.int64]
) -> NDArray[np.uint64]:
    hashes = spans(starts, stops)
    hashes ^= hashes >> np.uint64(29)
    mixed: NDArray[np.uint64] = hashes * np.uint64(0xBF58476D1CE4E5B9)
    return mixed


@cache
def _letters() -> NDArray[np.bool_]:
    """Return for each code point whether it is a letter or a digit; the last entry is for all later ones."""
    letters = np.array([chr(code).isalnum() for code in range(_CLASSIFIED)], np.bool_)
    letters[-1] = True
    return letters
