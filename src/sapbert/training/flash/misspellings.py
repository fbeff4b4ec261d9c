"""Copies of names with one spelling error, so that misspelt mentions are encoded near their names.

One word of more than three letters is changed inside: a letter is deleted, two neighbouring letters are
swapped, or a letter is replaced or inserted. Letters outside a to z are only deleted or swapped, since their
alphabet is not known here. All names are processed as one array of characters.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sapbert.encoder.flash.characters import LETTER, classify

_SHORTEST = 4
"""Letters of the shortest word that is misspelt."""
_FIRST_LETTER, _LETTERS = ord("a"), 26


class _Edit(IntEnum):
    """Kinds of spelling errors; the first two need no alphabet."""

    DELETE = 0
    SWAP = 1
    REPLACE = 2
    INSERT = 3


class Misspellings(NamedTuple):
    """Misspelt copies of some names."""

    names: NDArray[np.int64]
    """Number of the name that each copy was made of, ascending."""
    texts: list[str]


class _Words(NamedTuple):
    """One word of each name that can be misspelt."""

    names: NDArray[np.int64]
    starts: NDArray[np.int64]
    lengths: NDArray[np.int64]


def misspell(names: Sequence[str], generator: np.random.Generator) -> Misspellings:
    """Return a copy of each name with one random error; names without a word long enough are left out."""
    text = np.frombuffer("".join(f"{name}\n" for name in names).encode("utf-32-le"), np.uint32)
    ends = np.flatnonzero(text == ord("\n")) + 1
    words = _draw_words(text, ends, generator)
    places = words.starts + generator.integers(1, words.lengths - 1)
    latin = (text[places] >= _FIRST_LETTER) & (text[places] < _FIRST_LETTER + _LETTERS)
    edits = generator.integers(0, np.where(latin, len(_Edit), _Edit.REPLACE))
    # A letter is not replaced by itself.
    shifts = generator.integers(edits == _Edit.REPLACE, _LETTERS)
    letters = (text[places].astype(np.int64) - _FIRST_LETTER + shifts) % _LETTERS
    starts = np.concatenate([[0], ends[:-1]])[words.names]
    copies = _edited(text, starts, ends[words.names], places, edits, letters + _FIRST_LETTER)
    texts = copies.tobytes().decode("utf-32-le").split("\n")[:-1]
    # Swapping two equal letters changes nothing.
    changed = [number for number, row in enumerate(words.names.tolist()) if texts[number] != names[row]]
    return Misspellings(words.names[changed], [texts[number] for number in changed])


def _draw_words(text: NDArray[np.uint32], ends: NDArray[np.int64], generator: np.random.Generator) -> _Words:
    """Draw one word of each name among those that are long enough."""
    letters = classify(text)[0] == LETTER
    edges = np.flatnonzero(np.diff(letters, prepend=False))
    # The text ends with a line feed, so each word has both edges.
    starts, lengths = edges[::2], edges[1::2] - edges[::2]
    starts, lengths = starts[lengths >= _SHORTEST], lengths[lengths >= _SHORTEST]
    names = np.searchsorted(ends, starts, side="right")
    order = np.lexsort((generator.random(len(names)), names))
    drawn = order[np.flatnonzero(np.diff(names, prepend=-1))]
    return _Words(names[drawn], starts[drawn], lengths[drawn])


def _edited(
    text: NDArray[np.uint32],
    starts: NDArray[np.int64],
    ends: NDArray[np.int64],
    places: NDArray[np.int64],
    edits: NDArray[np.int64],
    letters: NDArray[np.int64],
) -> NDArray[np.uint32]:
    """Return the names between `starts` and `ends`, each with an edit at its place, as one array."""
    grown = np.select([edits == _Edit.DELETE, edits == _Edit.INSERT], [-1, 1])
    lengths = ends - starts + grown
    stops = np.cumsum(lengths)
    position = np.arange(stops[-1] if len(stops) else 0)
    # Where each character comes from: shifted by one after a deleted or inserted letter.
    target = places - starts + stops - lengths
    after = position > np.repeat(np.where(edits == _Edit.DELETE, target - 1, target), lengths)
    source = position + np.repeat(starts - stops + lengths, lengths) - after * np.repeat(grown, lengths)
    edited: NDArray[np.uint32] = text[source]
    swapped, written = edits == _Edit.SWAP, edits >= _Edit.REPLACE
    edited[target[swapped]] = text[places[swapped] + 1]
    edited[target[swapped] + 1] = text[places[swapped]]
    edited[target[written]] = letters[written]
    return edited
