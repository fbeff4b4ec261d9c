"""Context of mentions by triggers and their scope, after the ConText algorithm (Harkema et al. 2009).

A trigger ("no", "ruled out", "mother") gives its context to the mentions in its scope: the words after or
before it, up to the end of the sentence, a phrase that ends scopes ("but"), or the next trigger of the same
kind and direction. Every context names its trigger with offsets, so a reader can see why. The phrases are in
`rules_en.tsv`, whose first lines describe the format; other languages are files of the same form.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from sapbert.errors import FormatError
from sapbert.index.lexicon.words import Gap, Splitter, Words

KINDS = ("negated", "possible", "hypothetical", "historical", "family")
_PSEUDO, _END = "pseudo", "end"
_NOT_FAMILY = "not-family"
_DIRECTIONS = ("forward", "backward", "final", "none", _NOT_FAMILY)
_MAX_SCOPE = 40
"""Words that a scope may contain; longer sentences are rarely about one thing."""


class Trigger(NamedTuple):
    """A context of a mention, and the phrase it is inferred from."""

    kind: str
    """One of `KINDS`."""
    start: int
    """Offset of the phrase, in code points."""
    end: int
    phrase: str


class _Found(NamedTuple):
    """A phrase in a text, from its first to its last word."""

    first: int
    last: int
    kind: str
    direction: str
    distance: int
    """Largest distance of a mention in words."""


@dataclass(frozen=True)
class ContextRules:
    """Phrases that say something about the mentions around them."""

    meanings: dict[tuple[int, ...], list[tuple[str, str, int]]]
    """Hashes of the words of a phrase → kind, direction and largest distance in words, one or several."""
    lengths: dict[int, list[int]]
    """Hash of the first word → lengths of the phrases that begin with it, the longest first."""

    @classmethod
    def open(cls, path: Path | None = None) -> Self:
        """Read a file of rules; by default the English rules of this package."""
        if path is None:
            source = files(__package__) / "rules_en.tsv"
            return cls.parse(source.read_text(encoding="utf-8"), "rules_en.tsv")
        return cls.parse(path.read_text(encoding="utf-8"), str(path))

    @classmethod
    def parse(cls, text: str, name: str) -> Self:
        """Parse the text of a file of rules."""
        splitter = Splitter()
        meanings: dict[tuple[int, ...], list[tuple[str, str, int]]] = {}
        for number, line in enumerate(text.splitlines(), 1):
            if not line.strip() or line.startswith("#"):
                continue
            phrase, *meaning = _parse_line(line, name, number)
            hashes = tuple(splitter.split([phrase]).hash.tolist())
            if not hashes:
                raise FormatError(name, number, f"a phrase without words: {phrase!r}")
            meanings.setdefault(hashes, []).append((meaning[0], meaning[1], int(meaning[2])))
        lengths: dict[int, set[int]] = {}
        for hashes in meanings:
            lengths.setdefault(hashes[0], set()).add(len(hashes))
        return cls(meanings, {first: sorted(found, reverse=True) for first, found in lengths.items()})

    def find(
        self, texts: Sequence[str], words: Words, spans: Sequence[tuple[int, int, int]]
    ) -> list[tuple[Trigger, ...]]:
        """Return the context of each span, given by text, start and end."""
        if not spans:
            return []
        sentences = np.cumsum(words.gap == Gap.BREAK)
        firsts, lasts = _word_numbers(words, spans)
        by_sentence: dict[int, list[_Found]] = {}
        for sentence, found in self._phrases_in(words, sentences, sentences[firsts]):
            by_sentence.setdefault(sentence, []).append(found)
        # A sentence in which phrases only end scopes gives no context.
        by_sentence = {
            sentence: found
            for sentence, found in by_sentence.items()
            if any(one.kind in KINDS for one in found)
        }
        columns = (sentences[firsts].tolist(), firsts.tolist(), lasts.tolist())
        return [
            tuple(_triggers(texts[span[0]], words, by_sentence[sentence], first, last))
            if sentence in by_sentence
            else ()
            for span, sentence, first, last in zip(spans, *columns, strict=True)
        ]

    def _phrases_in(
        self, words: Words, sentences: NDArray[np.int64], wanted: NDArray[np.int64]
    ) -> Iterator[tuple[int, _Found]]:
        """Yield the phrases of the sentences in `wanted`; a phrase inside a longer one does not count."""
        firsts = np.fromiter(self.lengths, np.uint64, len(self.lengths))
        needed = np.zeros(int(sentences[-1]) + 1, np.bool_)
        needed[wanted] = True
        places = np.flatnonzero(needed[sentences] & np.isin(words.hash, firsts))
        hashes, covered = words.hash.tolist(), -1
        for place, sentence in zip(places.tolist(), sentences[places].tolist(), strict=True):
            if place <= covered:
                continue
            for length in self.lengths[hashes[place]]:
                end = place + length
                meanings = self.meanings.get(tuple(hashes[place:end]))
                if meanings is not None and end <= len(hashes) and sentences[end - 1] == sentence:
                    covered = end - 1
                    for kind, direction, distance in meanings:
                        if direction != "final" or _is_final(words, end):
                            yield sentence, _Found(place, end - 1, kind, direction, distance)
                    break


def _parse_line(line: str, name: str, number: int) -> tuple[str, str, str, str]:
    """Return phrase, kind, direction and distance of a rule."""
    phrase, kind, direction, distance = [*line.rstrip().split("\t"), "", "", ""][:4]
    known = kind in (*KINDS, _PSEUDO, _END) and direction in _DIRECTIONS
    if not known or not (distance or "1").isdigit():
        expected = "expected phrase, kind, direction and optionally words, separated by tabs"
        raise FormatError(name, number, f"not a rule: {line[:60]!r}", hint=expected)
    return phrase, kind, direction, distance or str(_MAX_SCOPE)


def _is_final(words: Words, end: int) -> bool:
    """Return whether a comma, a bracket or the end of the sentence is before word `end`."""
    return end == len(words) or words.gap[end] >= Gap.COMMA


def _word_numbers(
    words: Words, spans: Sequence[tuple[int, int, int]]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the first and the last word of each span."""
    longest = int(words.end.max()) + 2
    keys = words.text * longest + words.start
    columns = np.array(spans, np.int64)
    first = np.searchsorted(keys, columns[:, 0] * longest + columns[:, 1], "right") - 1
    last = np.searchsorted(keys, columns[:, 0] * longest + columns[:, 2], "left") - 1
    return np.maximum(first, 0), np.maximum(last, 0)


def _triggers(text: str, words: Words, found: list[_Found], first: int, last: int) -> Iterator[Trigger]:
    """Yield the triggers whose scope contains the span from word `first` to word `last`, one per kind."""
    outside = [one for one in found if one.last < first or one.first > last]
    for kind in KINDS:
        before = [one for one in outside if one.last < first and _matters(one, kind, "forward")]
        after = [one for one in outside if one.first > last and _matters(one, kind, "backward")]
        nearest = [before[-1]] if before and first - before[-1].last <= before[-1].distance else []
        nearest += [after[0]] if after and after[0].first - last <= after[0].distance else []
        for one in nearest:
            if one.kind == kind:
                start, end = int(words.start[one.first]), int(words.end[one.last])
                yield Trigger(kind, start, end, text[start:end])
                break


def _matters(found: _Found, kind: str, direction: str) -> bool:
    """Return whether a phrase is a trigger of this kind and direction, or ends the scope of one."""
    if found.kind == _END:
        return found.direction != _NOT_FAMILY or kind != "family"
    return found.kind == kind and (found.direction == "forward") == (direction == "forward")
