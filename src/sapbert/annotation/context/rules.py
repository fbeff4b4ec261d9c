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


class _Phrase(NamedTuple):
    hashes: tuple[int, ...]
    meanings: tuple[tuple[str, str, int], ...]
    """Kind, direction and the largest distance in words; a phrase may have several."""


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

    phrases: dict[int, list[_Phrase]]
    """By the hash of the first word, the longest phrase first."""

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
        phrases: dict[int, list[_Phrase]] = {}
        for hashes in sorted(meanings, key=len, reverse=True):
            phrases.setdefault(hashes[0], []).append(_Phrase(hashes, tuple(meanings[hashes])))
        return cls(phrases)

    def find(
        self, texts: Sequence[str], words: Words, spans: Sequence[tuple[int, int, int]]
    ) -> list[tuple[Trigger, ...]]:
        """Return the context of each span, given by text, start and end."""
        if not spans:
            return []
        sentence = np.cumsum(words.gap == Gap.BREAK)
        first, last = _word_numbers(words, spans)
        wanted = set(sentence[first].tolist())
        by_sentence: dict[int, list[_Found]] = {}
        for found in self._phrases_in(words, sentence, wanted):
            by_sentence.setdefault(int(sentence[found.first]), []).append(found)
        results = []
        for place, (text, _, _) in enumerate(spans):
            here = by_sentence.get(int(sentence[first[place]]), [])
            results.append(tuple(_triggers(texts[text], words, here, int(first[place]), int(last[place]))))
        return results

    def _phrases_in(self, words: Words, sentence: np.ndarray, wanted: set[int]) -> Iterator[_Found]:
        """Yield the phrases of the sentences in `wanted`; a phrase inside a longer one does not count."""
        firsts = np.fromiter(self.phrases, np.uint64, len(self.phrases))
        hashes = words.hash.tolist()
        covered = -1
        for place in np.flatnonzero(np.isin(words.hash, firsts)).tolist():
            if place <= covered or int(sentence[place]) not in wanted:
                continue
            for phrase in self.phrases[hashes[place]]:
                end = place + len(phrase.hashes)
                if tuple(hashes[place:end]) == phrase.hashes and sentence[end - 1] == sentence[place]:
                    covered = end - 1
                    for kind, direction, distance in phrase.meanings:
                        if direction != "final" or _is_final(words, end):
                            yield _Found(place, end - 1, kind, direction, distance)
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


def _word_numbers(words: Words, spans: Sequence[tuple[int, int, int]]) -> tuple[np.ndarray, np.ndarray]:
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
