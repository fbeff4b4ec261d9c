"""What stands behind the rows of an index: names, their concepts, types and sources. numpy only, mapped.

A row is a distinct folded name (`text.fold`): spellings that fold alike share a vector, and a name of several
concepts is stored and found once. Rows are in order of their folded text, so an exact match is a bisection on
disk: opening costs nothing, and nothing is held in memory. `index.name_table_writer` writes all this.

| file | type | what |
|---|---|---|
| `texts` | texts | a row's spelling in the vocabulary, the first of several |
| `folded` | texts | a row's folded name, in order; what the encoder reads |
| `concepts`, `preferred` | texts | CURIE of each concept, in order, and the name to show |
| `aliases`, `alias_concepts.npy` | texts, int32 | other identifiers, in order, and whose they are |
| `link_offsets.npy` | offsets (rows + 1) | where the links of each row begin |
| `link_concepts.npy`, `link_sources.npy` | int32 | a link: this concept has this name, says this source |
| `type_offsets.npy`, `type_numbers.npy` | offsets (concepts + 1), int32 | the types of each concept |
| `words.json` | | the sources and types that the numbers stand for |

Texts are two files: `NAME.npy` (UTF-8) and `NAME_offsets.npy`. Offsets are int32 where that is enough.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sapbert.arrays import Offsets, Texts, damaged, map_numbers, map_offsets
from sapbert.curies import canonical_prefix
from sapbert.errors import ConfigError, suggestion

WORDS = "words.json"
_MOST_LISTED = 3
"""Words that an error offers in place of an unknown one."""


class Selection(NamedTuple):
    """Which rows and links a filter leaves."""

    rows: NDArray[np.bool_]
    """Rows with a link that is left."""
    links: NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class NameTable:
    """The names of an index and what they name."""

    texts: Texts
    """A row's spelling, to be shown.  # (rows,)"""
    folded: Texts
    """A row's folded name.  # (rows,)"""
    concepts: Texts
    """Identifier of each concept.  # (concepts,)"""
    preferred: Texts
    """The name to show for each concept.  # (concepts,)"""
    aliases: Texts
    alias_concepts: NDArray[np.int32]
    link_offsets: Offsets
    """Where the links of each row begin.  # (rows + 1,)"""
    link_concepts: NDArray[np.int32]
    """Concept number of each link, ascending within a row.  # (links,)"""
    link_sources: NDArray[np.int32]
    type_offsets: Offsets
    type_numbers: NDArray[np.int32]
    sources: tuple[str, ...]
    types: tuple[str, ...]

    @classmethod
    def open(cls, folder: Path) -> NameTable:
        """Map what `write_name_table` wrote."""
        try:
            words = json.loads((folder / WORDS).read_text(encoding="utf-8"))
        except ValueError as error:
            raise damaged(folder / WORDS, "it holds no JSON") from error
        folded, concepts = Texts.open(folder, "folded"), Texts.open(folder, "concepts")
        aliases = Texts.open(folder, "aliases")
        sources, types = tuple(words["sources"]), tuple(words["types"])
        links = map_numbers(folder / "link_concepts.npy", np.int32, rows=None, below=len(concepts))
        type_numbers = map_numbers(folder / "type_numbers.npy", np.int32, rows=None, below=len(types))
        return cls(
            texts=Texts.open(folder, "texts", rows=len(folded)),
            folded=folded,
            concepts=concepts,
            preferred=Texts.open(folder, "preferred", rows=len(concepts)),
            aliases=aliases,
            alias_concepts=map_numbers(
                folder / "alias_concepts.npy", np.int32, rows=len(aliases), below=len(concepts)
            ),
            link_offsets=map_offsets(folder / "link_offsets.npy", rows=len(folded), end=len(links)),
            link_concepts=links,
            link_sources=map_numbers(
                folder / "link_sources.npy", np.int32, rows=len(links), below=len(sources)
            ),
            type_offsets=map_offsets(folder / "type_offsets.npy", rows=len(concepts), end=len(type_numbers)),
            type_numbers=type_numbers,
            sources=sources,
            types=types,
        )

    def __len__(self) -> int:
        return len(self.folded)

    def rows_of(self, folded: Sequence[str]) -> NDArray[np.int64]:
        """Return the row of each folded name, -1 where the vocabulary has no such name."""
        return self.folded.rows_of(folded)

    def concepts_of(self, curies: Sequence[str]) -> NDArray[np.int64]:
        """Return the number of each concept, by identifier or alias; -1 where there is none."""
        numbers = self.concepts.rows_of(curies)
        missing = np.flatnonzero(numbers < 0)
        rows = self.aliases.rows_of([curies[number] for number in missing.tolist()])
        numbers[missing[rows >= 0]] = self.alias_concepts[rows[rows >= 0]]
        return numbers

    def resolve(self, curies: Sequence[str]) -> dict[str, tuple[str, ...]]:
        """Map ids, which may be aliases, to the id of their concept; leave out unknown ones."""
        numbers = self.concepts_of(curies).tolist()
        return {
            curie: (self.concepts[number],)
            for curie, number in zip(curies, numbers, strict=True)
            if number >= 0
        }

    def links_of(self, row: int) -> slice:
        """Where the links of a row lie in `link_concepts` and `link_sources`."""
        return slice(int(self.link_offsets[row]), int(self.link_offsets[row + 1]))

    def links_behind(self, rows: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return every link of some rows: whose it is, as a place in `rows`, and its number."""
        begin = self.link_offsets[rows]
        count = self.link_offsets[rows + 1] - begin
        place = np.repeat(np.arange(len(rows)), count)
        return place, np.arange(len(place)) - np.repeat(np.cumsum(count) - count, count) + begin[place]

    def select(
        self, *, types: Sequence[str] = (), sources: Sequence[str] = (), prefixes: Sequence[str] = ()
    ) -> Selection | None:
        """Find what remains with concepts of any of `types` and `prefixes`, named by any of `sources`.

        None where nothing is filtered. A word the index does not know is an error, not an empty answer.
        """
        if not (types or sources or prefixes):
            return None
        links = np.ones(len(self.link_concepts), np.bool_)
        if types:
            links &= self._having_types(types)[self.link_concepts]
        if prefixes:
            links &= self._having_prefixes(prefixes)[self.link_concepts]
        if sources:
            links &= _mask(sources, self.sources, "source")[self.link_sources]
        # No row is without a link, or `reduceat` would give it its neighbour's.
        rows = np.logical_or.reduceat(links, self.link_offsets[:-1]) if len(self) else links
        return Selection(rows, links)

    def prefixes(self) -> list[str]:
        """The prefixes of all concepts, in order."""
        found = []
        start = 0
        while start < len(self.concepts):
            prefix = self.concepts[start].partition(":")[0]
            found.append(prefix)
            start = self._span_of(prefix).stop
        return found

    def _having_types(self, types: Sequence[str]) -> NDArray[np.bool_]:
        """Say of each concept whether it has any of `types`."""
        wanted = _mask(types, self.types, "type")
        # Counted up, because a concept may have no type at all.
        before = np.concatenate([[0], np.cumsum(wanted[self.type_numbers])])
        having: NDArray[np.bool_] = np.diff(before[self.type_offsets]) > 0
        return having

    def _having_prefixes(self, prefixes: Sequence[str]) -> NDArray[np.bool_]:
        known = self.prefixes()
        having = np.zeros(len(self.concepts), np.bool_)
        wanted = _mask(list(map(canonical_prefix, prefixes)), known, "prefix")
        for prefix in itertools.compress(known, wanted):
            having[self._span_of(prefix)] = True
        return having

    def _span_of(self, prefix: str) -> slice:
        """Where the concepts of a prefix lie; they are neighbours, as identifiers are in order."""
        after = chr(ord(":") + 1)
        return slice(*(self.concepts.position(f"{prefix}{end}".encode()) for end in (":", after)))


def require_known(words: Sequence[str], known: Sequence[str], what: str) -> None:
    """Refuse a word that the index does not know: as a filter it would leave nothing, without a reason."""
    for word in words:
        if word not in known:
            known_words = ", ".join(known) if len(known) <= _MOST_LISTED else f"{len(known):,}"
            hint = suggestion(word, known, most=_MOST_LISTED) or f"; it has {known_words or 'none'}"
            raise ConfigError(f"the index has no {what} {word!r}{hint}")


def _mask(words: Sequence[str], known: Sequence[str], what: str) -> NDArray[np.bool_]:
    """Say of each word in `known` whether it is wanted."""
    require_known(words, known, what)
    return np.isin(np.array(known, np.object_), np.array(words, np.object_))
