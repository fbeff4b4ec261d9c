"""Tables over all Unicode characters: what a character is, its plain form, and its sound.

A table is filled when a character first occurs, so importing costs nothing, and reading a table is one numpy
operation for a whole batch. Two threads that fill the same entry write the same value.
"""

from __future__ import annotations

import unicodedata
from typing import Final

import numpy as np
from numpy.typing import NDArray

SEPARATOR: Final = 1
LETTER: Final = 2
DIGIT: Final = 3
IDEOGRAPH: Final = 4
"""A token of its own: Chinese and Japanese write words without spaces."""
KATAKANA: Final = 5
HIRAGANA: Final = 6
IGNORED: Final = 7
"""A diacritic that follows its letter."""
END: Final = 8
"""The line feed that ends a name."""
DROPPED: Final = 0
"""In the table of sounds: a letter without a sound."""

_SIZE = 0x110000
_LATIN_GREEK_CYRILLIC = ((0x0, 0x530), (0x1D00, 0x2000), (0x2C60, 0x2C80), (0xA640, 0xA7FF))
"""Scripts whose accents are removed. Elsewhere a mark changes the letter: Japanese ga would become ka."""
_IDEOGRAPHS = ((0x3400, 0x4DC0), (0x4E00, 0xA000), (0xF900, 0xFB00), (0x20000, 0x30000))
_SIMILAR = str.maketrans(
    "kqyzwj"
    "абвгґдеєжзиіїйклмнопрстуфхцчшщыэюя"
    "αβγδεζηθικλμνξοπρσςτυφχψω",
    "ccisvi"
    "abvggdeessiiiiclmnoprstufhccssieua"
    "abgdesiticlmnxoprsstifcpo",
)  # fmt: skip
"""Letter → the Latin letter that stands for its sound in the names of other languages."""
_SILENT = "ъь'"

_kinds = np.zeros(_SIZE, np.uint8)
_plain = np.zeros(_SIZE, np.uint32)
_sounds = np.zeros(_SIZE, np.uint32)


def classify(characters: NDArray[np.uint32]) -> tuple[NDArray[np.uint8], NDArray[np.uint32]]:
    """Return the kind and the plain form of each character: lower case, without accents."""
    kinds = _kinds[characters]
    if not kinds.all():
        for character in np.unique(characters[kinds == 0]).tolist():
            _fill(character)
        kinds = _kinds[characters]
    return kinds, _plain[characters]


def sounds(plain: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """Return the sound of each plain character; `DROPPED` if it has none."""
    return _sounds[plain]


def _fill(character: int) -> None:
    plain = _plain_form(chr(character))
    sound = plain.translate(_SIMILAR)
    for number in {character, ord(plain)}:
        _plain[number] = ord(plain)
        _sounds[number] = DROPPED if sound in _SILENT else ord(sound)
        # Last, because another thread reads the other tables where this one is not 0.
        _kinds[number] = _kind(chr(number))


def _plain_form(character: str) -> str:
    lower = character.lower()
    if any(start <= ord(character) < end for start, end in _LATIN_GREEK_CYRILLIC):
        lower = unicodedata.normalize("NFD", lower)
    return lower[0]


def _kind(character: str) -> int:
    number, category = ord(character), unicodedata.category(character)
    if character == "\n":
        return END
    if any(start <= number < end for start, end in _IDEOGRAPHS):
        return IDEOGRAPH
    if 0x300 <= number < 0x370:
        return IGNORED
    if 0x3040 <= number < 0x30A0:
        return HIRAGANA
    if 0x30A0 <= number < 0x3100 and character != "・":
        return KATAKANA
    if category[0] in "LM":
        return LETTER
    return DIGIT if category[0] == "N" else SEPARATOR


# Tokens are separated by spaces even if no name contains one.
_fill(ord(" "))
