"""Mentions to concepts: the nearest names, and what they name.

A mention that is, after folding, a name of the vocabulary (or a labelled mention added to it) is answered by
that name first; the encoder ranks what follows. Of each concept only its best name counts.

An index breaks ties by row, but candidates are ordered by score and then by identifier. So the search goes
deeper until k concepts are found and the last row found scores below the last of them: only then can no row
left behind change the answer. Scores are rounded first, since equal vectors may differ in the last bits.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from threading import Lock
from typing import Final, Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from sapbert.errors import ConfigError
from sapbert.index.entries import Entries
from sapbert.protocols import Encoder, Index
from sapbert.text import fold

NIL: Final = "NIL"
"""What a table says in place of a concept, where a mention has no candidate."""
BATCH = 2048
"""Mentions encoded and searched together."""
How = Literal["exact", "dense", "hybrid"]
Calibration = Callable[[Sequence[float]], Sequence[float]]
"""From the scores of a mention's candidates, best first, to the probability that each is right."""
_DECIMALS = 6
_CELLS = 1 << 22
"""Rows held at a time: mentions times depth of the search."""
_READ = 10_000
"""Characters of a mention that are encoded: more than any encoder reads."""
_REMEMBERED = 1 << 16
_LONG = 200
"""Characters above which a mention is not expected to come again."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A concept that a mention may mean."""

    concept: str
    """Its identifier, a CURIE."""
    preferred_name: str
    name: str
    """Its name that matched."""
    score: float
    """Cosine of mention and name; 1 where they are the same after folding."""
    confidence: float | None
    """Probability that this is right, where a calibration was given."""
    how: How


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkSettings:
    """How mentions are linked; every field is also an option of `sapbert link`."""

    exact: bool = True
    """A name equal after folding answers before the encoder does."""
    threshold: float | None = None
    """Candidates that score less are left out; a mention without any is NIL."""
    types: tuple[str, ...] = ()
    """Only concepts of one of these types."""
    sources: tuple[str, ...] = ()
    """Only names from one of these sources."""
    prefixes: tuple[str, ...] = ()
    """Only concepts whose identifier has one of these prefixes."""

    def __post_init__(self) -> None:
        if self.threshold is not None and not -1 <= self.threshold <= 1:
            raise ConfigError(f"threshold is a cosine between -1 and 1, got {self.threshold}")


DEFAULTS: Final = LinkSettings()


class NameSearch(Protocol):
    """Finds the names nearest to mentions; `DenseSearch`, or one that knows more than vectors."""

    @property
    def how(self) -> How:
        """What its candidates say of how they were found."""
        ...

    def search(
        self,
        texts: Sequence[str],
        vectors: NDArray[np.float32],
        k: int,
        *,
        allowed: NDArray[np.bool_] | None = None,
    ) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """As `protocols.Index.search`, of mentions known by folded text and by vector."""
        ...


@dataclass(frozen=True, slots=True)
class DenseSearch:
    """Finds names by their vectors alone."""

    index: Index
    how: How = "dense"

    def search(
        self,
        texts: Sequence[str],  # noqa: ARG002
        vectors: NDArray[np.float32],
        k: int,
        *,
        allowed: NDArray[np.bool_] | None = None,
    ) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Return the nearest rows."""
        return self.index.search(vectors, k, allowed=allowed)


class _Scope(NamedTuple):
    """What filters leave; None where nothing is filtered."""

    rows: NDArray[np.bool_] | None
    links: NDArray[np.bool_] | None
    concepts: NDArray[np.bool_] | None
    size: int
    """Rows left."""


class _Ranked(NamedTuple):
    """The concepts behind rows, each with its best name: ordered by mention, score and identifier."""

    mentions: NDArray[np.int64]
    concepts: NDArray[np.int64]
    scores: NDArray[np.float64]
    rows: NDArray[np.int64]


class Linker:
    """Links mentions to the concepts of an index. May be used from several threads."""

    def __init__(
        self,
        encoder: Encoder,
        search: NameSearch,
        entries: Entries,
        *,
        calibration: Calibration | None = None,
    ) -> None:
        self.entries = entries
        self._encoder = encoder
        self._search = search
        self._calibration = calibration
        self._added: dict[str, dict[int, str]] = {}
        self._answers: OrderedDict[tuple[str, int, LinkSettings], list[Candidate]] = OrderedDict()
        self._scope: tuple[LinkSettings, _Scope] | None = None
        self._lock = Lock()

    def add_mentions(self, labelled: Iterable[tuple[str, str]]) -> int:
        """Answer these mentions with these concepts, as if they were names; return how many were added.

        Identifiers may be aliases. A mention of a concept that the index does not have is left out.
        """
        pairs = list(labelled)
        numbers = self.entries.concepts_of([curie for _, curie in pairs])
        with self._lock:
            for (mention, _), number in zip(pairs, numbers.tolist(), strict=True):
                if number >= 0:
                    self._added.setdefault(fold(mention), {}).setdefault(number, mention)
            self._answers.clear()
        return int((numbers >= 0).sum())

    def link(
        self, mentions: Sequence[str], *, k: int = 5, settings: LinkSettings = DEFAULTS
    ) -> list[list[Candidate]]:
        """Return the best k candidates of each mention, best first; none (NIL) for an empty mention.

        A mention that comes again, in whatever case, is encoded and searched once.
        """
        if isinstance(mentions, str):
            raise TypeError("link takes several mentions; put the one into a list")
        if k < 1:
            raise ConfigError(f"k is the number of candidates wanted, at least 1, got {k}")
        scope = self._scope_of(settings)
        texts = [fold(mention) for mention in mentions]
        answers: dict[str, list[Candidate]] = {"": []}
        new = []
        for text in dict.fromkeys(texts):
            if (known := self._recall(text, k, settings)) is not None:
                answers[text] = known
            elif text:
                new.append(text)
        for start in range(0, len(new), BATCH):
            batch = new[start : start + BATCH]
            for text, answer in zip(batch, self._answer(batch, k, settings, scope), strict=True):
                answers[text] = answer
                self._remember(text, k, settings, answer)
        return [list(answers[text]) for text in texts]

    def _answer(
        self, texts: list[str], k: int, settings: LinkSettings, scope: _Scope
    ) -> list[list[Candidate]]:
        """Link distinct folded mentions, none of them empty."""
        found: list[dict[int, Candidate]] = [{} for _ in texts]
        if settings.exact:
            for own, named in zip(found, self._exact(texts, scope), strict=True):
                own.update((number, self._candidate(number, named[number], 1.0, "exact")) for number in named)
        wanting = [number for number, own in enumerate(found) if len(own) < k]
        ranked = self._nearest([texts[number] for number in wanting], k, scope)
        for number, nearest in zip(wanting, ranked, strict=True):
            for concept, score, row in nearest:
                if len(found[number]) < k and concept not in found[number]:
                    name = self.entries.texts[row]
                    found[number][concept] = self._candidate(concept, name, score, self._search.how)
        return [self._judged(list(own.values())[:k], settings) for own in found]

    def _exact(self, texts: list[str], scope: _Scope) -> Iterator[Mapping[int, str]]:
        """Yield, for each mention, the concepts it is a name of, in order, and that name as it is spelled."""
        entries = self.entries
        for text, row in zip(texts, entries.rows_of(texts).tolist(), strict=True):
            named = dict(self._added.get(text, {}))
            if scope.concepts is not None:
                named = {concept: name for concept, name in named.items() if scope.concepts[concept]}
            if row >= 0:
                links = entries.links_of(row)
                concepts = entries.link_concepts[links]
                if scope.links is not None:
                    concepts = concepts[scope.links[links]]
                named.update(dict.fromkeys(concepts.tolist(), entries.texts[row]))
            yield {concept: named[concept] for concept in sorted(named)}

    def _nearest(self, texts: list[str], k: int, scope: _Scope) -> list[list[tuple[int, float, int]]]:
        """Return, for each mention, the best k concepts with their score and the row of their best name."""
        best: list[list[tuple[int, float, int]]] = [[] for _ in texts]
        if not texts:
            return best
        k = min(k, len(self.entries.concepts))
        vectors = self._encoder.encode([text[:_READ] for text in texts])
        waiting = np.arange(len(texts))
        depth = min(max(64, 8 * k), scope.size)
        while len(waiting) and depth:
            deeper = []
            step = max(1, _CELLS // depth)
            for start in range(0, len(waiting), step):
                some = waiting[start : start + step]
                own = [texts[number] for number in some.tolist()]
                scores, rows = self._search.search(own, vectors[some], depth, allowed=scope.rows)
                floors = _floors(scores, rows, whole=depth >= scope.size)
                for number, floor, ranked in zip(some, floors, self._split(scores, rows, scope), strict=True):
                    best[number] = ranked[:k]
                    if floor is not None and (len(ranked) < k or ranked[k - 1][1] <= floor):
                        deeper.append(number)
            waiting = np.array(deeper, np.int64)
            depth = min(4 * depth, scope.size)
        return best

    def _split(
        self, scores: NDArray[np.float32], rows: NDArray[np.int64], scope: _Scope
    ) -> Iterator[list[tuple[int, float, int]]]:
        """Yield the concepts behind the rows of each mention, best first."""
        ranked = _rank(self.entries, scores, rows, scope.links)
        bounds = np.searchsorted(ranked.mentions, np.arange(len(rows) + 1))
        triples = list(
            zip(ranked.concepts.tolist(), ranked.scores.tolist(), ranked.rows.tolist(), strict=True)
        )
        for start, stop in pairwise(bounds.tolist()):
            yield triples[start:stop]

    def _candidate(self, concept: int, name: str, score: float, how: How) -> Candidate:
        entries = self.entries
        return Candidate(entries.concepts[concept], entries.preferred[concept], name, score, None, how)

    def _judged(self, candidates: list[Candidate], settings: LinkSettings) -> list[Candidate]:
        """Add confidence, and drop what scores too little."""
        if self._calibration is not None:
            sure = self._calibration([candidate.score for candidate in candidates])
            candidates = [replace(c, confidence=float(p)) for c, p in zip(candidates, sure, strict=True)]
        if settings.threshold is None:
            return candidates
        return [candidate for candidate in candidates if candidate.score >= settings.threshold]

    def _scope_of(self, settings: LinkSettings) -> _Scope:
        """Find what the filters of `settings` leave, which is costly: once for many calls."""
        known = self._scope
        if known is not None and known[0] == settings:
            return known[1]
        entries = self.entries
        selection = entries.select(types=settings.types, sources=settings.sources, prefixes=settings.prefixes)
        if selection is None:
            scope = _Scope(None, None, None, len(entries))
        else:
            concepts = np.zeros(len(entries.concepts), np.bool_)
            concepts[entries.link_concepts[selection.links]] = True
            scope = _Scope(selection.rows, selection.links, concepts, int(selection.rows.sum()))
        self._scope = (settings, scope)
        return scope

    def _recall(self, text: str, k: int, settings: LinkSettings) -> list[Candidate] | None:
        with self._lock:
            return self._answers.get((text, k, settings))

    def _remember(self, text: str, k: int, settings: LinkSettings, answer: list[Candidate]) -> None:
        if len(text) > _LONG:
            return
        with self._lock:
            self._answers[text, k, settings] = answer
            if len(self._answers) > _REMEMBERED:
                self._answers.popitem(last=False)


def _floors(scores: NDArray[np.float32], rows: NDArray[np.int64], *, whole: bool) -> list[float | None]:
    """Say of each mention what a row not found may score at most; None where every row was found."""
    if whole:
        return [None] * len(rows)
    lowest = scores[:, -1].astype(np.float64).round(_DECIMALS).tolist()
    return [score if row >= 0 else None for score, row in zip(lowest, rows[:, -1].tolist(), strict=True)]


def _rank(
    entries: Entries,
    scores: NDArray[np.float32],
    rows: NDArray[np.int64],
    allowed: NDArray[np.bool_] | None,
) -> _Ranked:
    """Find the concepts behind the rows of some mentions; of each concept the best name, or the first.

    # scores, rows: (mentions, depth); allowed: (links,)
    """
    mention, column = np.nonzero(rows >= 0)
    row = rows[mention, column]
    score = scores[mention, column].astype(np.float64).round(_DECIMALS)
    begin = entries.link_offsets[row]
    count = entries.link_offsets[row + 1] - begin
    hit = np.repeat(np.arange(len(row)), count)
    link = np.arange(len(hit)) - np.repeat(np.cumsum(count) - count, count) + begin[hit]
    if allowed is not None:
        hit, link = hit[allowed[link]], link[allowed[link]]
    concept = entries.link_concepts[link].astype(np.int64)
    mention, score, row = mention[hit], score[hit], row[hit]
    order = np.lexsort((row, -score, concept, mention))
    first = np.ones(len(order), np.bool_)
    first[1:] = (np.diff(mention[order]) != 0) | (np.diff(concept[order]) != 0)
    best = order[first]
    best = best[np.lexsort((concept[best], -score[best], mention[best]))]
    return _Ranked(mention[best], concept[best], score[best], row[best])
