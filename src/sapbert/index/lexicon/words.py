"""Words of a text, with offsets: the units in which names are found in running text.

Names and texts are split by the same rules, so a rule only has to be consistent. A word is a run of letters
or a run of digits, so that "IL-6", "IL6" and "IL 6" have equal words; each Chinese or Japanese character is a
word of its own. Words are compared by `normal_form`: folded, without English endings. Capitals are kept out
of the comparison, because a sentence may begin with any word; callers check them on the few names they find.

Texts are split by one regular expression into words and the gaps between them, and each distinct piece is
analyzed once. So the cost per word is a dictionary lookup, and offsets are cumulative sums of lengths. They
count code points, as Python strings do.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import chain
from threading import Lock

import numpy as np
from numpy.typing import NDArray
from xxhash import xxh3_64_intdigest

_CJK = "\u3041-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
# Marks that combine with the letter before them; Python's `\w` does not contain them.
_MARKS = "\u0300-\u036f\u0591-\u05bd\u064b-\u065f\u0670\u0900-\u0903\u093a-\u094f\u0e31-\u0e4e\u3099\u309a"
_PIECE = re.compile(rf"[{_CJK}]|(?:[^\W\d_{_CJK}]+|[{_MARKS}]+)+|\d+|(?:[^\w{_MARKS}]+|_+)+")
_ASCII_PIECE = re.compile(r"[A-Za-z]+|[0-9]+|[^A-Za-z0-9]+")
"""The same for ASCII, several times faster."""
_CJK_CHARACTER = re.compile(rf"[{_CJK}]")
_STOP_WORDS = frozenset(("of", "the", "in", "a", "an", "s"))
"""Words that do not distinguish names. Not "and", "or" or "with": they join two names as often as one."""
_SENTENCE_END = re.compile(r"[.!?;]['\")\]\u201d]*\s|[\n\r\u2028\u2029\u3002\t]|[.!?;]$")
_LINE_END = re.compile(r"[ \t]*\r?\n[ \t]*")
"""A line end that may be inside a sentence: it is if a lowercase word follows."""
_COMMA_OR_BRACKET = re.compile(r"[,()\[\]{}]|\s[-/\u2013\u2014]+\s|\s\W+\s|[.;:!?=<>+*|]")
_LINE, _WORD, _LOWERCASE, _CHARACTER = 200, 253, 254, 255
"""Pieces that are no `Gap`: a line end, words, words in lower case, Chinese or Japanese characters."""
_MAX_CACHED = 1 << 20
"""Distinct pieces that are remembered."""


class Gap(IntEnum):
    """What separates a word from the one before it."""

    NONE = 0
    """Nothing: letters and digits of one word."""
    SPACE = 1
    """White space, a hyphen or a slash."""
    HYPHEN = 2
    """A hyphen without white space."""
    COMMA = 3
    """A comma, a bracket or another sign, which a name may contain; or nothing, between characters that are
    words of their own."""
    COLON = 4
    """A colon; no name contains it, but the sentence does not end."""
    BREAK = 5
    """The end of a sentence, line or text."""


def normal_form(word: str) -> str:
    """Return the form by which words are compared: folded, and without plural and similar endings.

    Short words in capitals keep their s: "AIDS" is not the plural of "aid".
    """
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", word).casefold())
    if len(word) <= 5 and word.isupper():
        return folded
    if len(folded) <= 3 or not folded.isascii():
        if len(word) == 3 and word[-1] == "s" and word[:2].isupper():  # "MIs"
            return folded[:-1]
        return _without_accents(folded)
    return _stem(folded)


def _without_accents(word: str) -> str:
    """Return Latin letters without accents: "Sjögren" is often written "Sjogren"."""
    if word.isascii():
        return word
    plain = "".join(
        character for character in unicodedata.normalize("NFD", word) if not unicodedata.combining(character)
    )
    return _stem(plain) if plain.isascii() and len(plain) > 3 else (plain if plain.isascii() else word)


def _stem(word: str) -> str:
    """Return an English word without plural endings, and in American spelling."""
    if "ae" in word or "oe" in word or "our" in word:
        word = word.replace("ae", "e").replace("oe", "e")
        word = word.replace("our", "or") if word.endswith(("our", "ours")) else word
    if word.endswith("ies"):
        return word[:-3] + "i"
    if word.endswith("s") and not word.endswith(("ss", "us", "is")):
        word = word[:-1]
    if word.endswith("is") and len(word) > 5:
        return word[:-2]
    if word.endswith("e") and len(word) > 4:
        return word[:-1]
    return word[:-1] + "i" if word.endswith("y") else word


@dataclass(frozen=True, slots=True)
class Words:
    """The words of some texts, in order; each column has one value per word."""

    text: NDArray[np.int64]
    """Number of the text."""
    start: NDArray[np.int64]
    """Offset of the first character in its text, in code points."""
    end: NDArray[np.int64]
    """Offset after the last character."""
    code: NDArray[np.int64]
    """Number of the piece in the `Splitter`; differs if the spelling differs."""
    hash: NDArray[np.uint64]
    """Hash of the normal form."""
    gap: NDArray[np.uint8]
    """The `Gap` before the word."""
    content: NDArray[np.bool_]
    """False for stop words."""
    texts: int
    """Number of texts."""

    def __len__(self) -> int:
        return len(self.start)


class Splitter:
    """Splits texts into words. Remembers pieces that it has seen. Thread-safe."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._clear()

    def _clear(self) -> None:
        self._codes = _Codes()

    def content_hashes(self, text: str) -> list[int]:
        """Return the hashes of the content words of a short text, faster than `split`."""
        found = (_ASCII_PIECE if text.isascii() else _PIECE).findall(text)
        with self._lock:
            codes = [self._codes[piece] for piece in found]
            hashes, _, content = self._codes.columns()
            return [int(hashes[code]) for code in codes if content[code]]

    def split(self, texts: Sequence[str]) -> Words:
        """Return the words of `texts`."""
        found = [(_ASCII_PIECE if text.isascii() else _PIECE).findall(text) for text in texts]
        counts = np.fromiter(map(len, found), np.int64, len(found))
        total = int(counts.sum())
        with self._lock:
            if len(self._codes) > _MAX_CACHED:
                self._clear()
            codes = np.fromiter(
                map(self._codes.__getitem__, chain.from_iterable(found)), np.int64, count=total
            )
            hashes, gaps, content = self._codes.columns()
        lengths = np.fromiter(map(len, chain.from_iterable(found)), np.int64, count=total)
        text = np.repeat(np.arange(len(found)), counts)
        end = np.cumsum(lengths)
        before = np.concatenate([[0], end])[np.cumsum(counts) - counts]
        end = end - before[text]
        return _words(text, end - lengths, end, codes, hashes[codes], gaps[codes], content[codes], len(found))


class _Codes(dict[str, int]):
    """Numbers of pieces, and the properties of each."""

    def __init__(self) -> None:
        super().__init__()
        self._hashes = np.empty(1 << 12, np.uint64)
        self._gaps = np.empty(1 << 12, np.uint8)
        self._content = np.empty(1 << 12, np.bool_)

    def __missing__(self, piece: str) -> int:
        number = len(self)
        if number == len(self._hashes):
            self._hashes = np.resize(self._hashes, 2 * number)
            self._gaps = np.resize(self._gaps, 2 * number)
            self._content = np.resize(self._content, 2 * number)
        is_word = piece[0].isalnum() or unicodedata.category(piece[0])[0] == "M"
        form = normal_form(piece) if is_word else ""
        self._hashes[number] = xxh3_64_intdigest(form.encode()) if is_word else 0
        # "A" in capitals distinguishes names: "vitamin A".
        self._content[number] = is_word and (form not in _STOP_WORDS or piece in ("A", "S"))
        self._gaps[number] = _kind(piece) if is_word else _gap(piece)
        self[piece] = number
        return number

    def columns(self) -> tuple[NDArray[np.uint64], NDArray[np.uint8], NDArray[np.bool_]]:
        """Return hash, gap and whether it is a content word, for each piece and some numbers after them."""
        return self._hashes, self._gaps, self._content


def _kind(word: str) -> int:
    if _CJK_CHARACTER.match(word):
        return _CHARACTER
    return _LOWERCASE if word[0].islower() else _WORD


def _gap(piece: str) -> int:
    if _LINE_END.fullmatch(piece):
        return _LINE
    if _SENTENCE_END.search(piece):
        return Gap.BREAK
    if ":" in piece:
        return Gap.COLON
    if _COMMA_OR_BRACKET.search(piece):
        return Gap.COMMA
    return Gap.HYPHEN if piece in ("-", "\u2010", "\u2011") else Gap.SPACE


def _words(
    text: NDArray[np.int64],
    start: NDArray[np.int64],
    end: NDArray[np.int64],
    code: NDArray[np.int64],
    hash: NDArray[np.uint64],
    gap: NDArray[np.uint8],
    content: NDArray[np.bool_],
    texts: int,
) -> Words:
    """Remove the gaps from the pieces, and give each word the gap before it."""
    word = np.flatnonzero(gap >= _WORD)
    first = np.ones(len(word), np.bool_)
    first[1:] = text[word[1:]] != text[word[:-1]]
    before = np.zeros(len(word), np.uint8)
    separated = np.flatnonzero(word > 0)
    previous = gap[word[separated] - 1]
    # Chinese and Japanese texts have no spaces, so a name may begin after any character.
    character = (gap[word[separated]] == _CHARACTER) | (previous == _CHARACTER)
    before[separated] = np.where(previous >= _WORD, np.where(character, Gap.COMMA, Gap.NONE), previous)
    inside = gap[word] == _LOWERCASE
    before = np.where(before == _LINE, np.where(inside, Gap.SPACE, Gap.BREAK), before).astype(np.uint8)
    before[first] = Gap.BREAK
    # "E. coli": a point after a single letter does not end a sentence.
    initial = np.flatnonzero((before[1:] == Gap.BREAK) & ~first[1:]) + 1
    short = (end[word[initial - 1]] - start[word[initial - 1]] == 1) & (
        start[word[initial]] - end[word[initial - 1]] == 2
    )
    before[initial[short]] = Gap.COMMA
    return Words(text[word], start[word], end[word], code[word], hash[word], before, content[word], texts)
