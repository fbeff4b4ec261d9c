"""The names of an index, with their concepts, types and sources: memory-mapped numpy arrays.

A row is a distinct folded name (`text.fold`): spellings with the same folded form share a vector, and a name
of several concepts is stored once. Rows are sorted by folded name, so an exact match is a binary search on
disk; nothing is loaded into memory. `index.name_table_writer` writes the files:

| file | type | what |
|---|---|---|
| see `index.spellings` | | spelling of a row in the vocabulary, the first of several |
| `folded` | texts | folded name of a row, sorted; the input of the encoder |
| `concepts`, `preferred` | texts | CURIE of each concept, sorted, and the name to display |
| `aliases`, `alias_concepts.npy` | texts, int32 | other identifiers, sorted, and their concepts |
| `link_offsets.npy` | offsets (rows + 1) | where the links of each row start |
| `link_concepts.npy`, `link_sources.npy` | int32, small | a link: a source gives a concept this name |
| `link_kinds.npy`, `link_languages.npy` | small | kind and language of the name in this link |
| `link_preferred.npy` | bool | whether it is the preferred name of the concept in this language |
| `counted_links.npy`, `link_counts.npy` | int32, uint32 | links with a known count, and the counts |
| `type_offsets.npy`, `type_numbers.npy` | offsets (concepts + 1), int32 | the types of each concept |
| `words.json` | | what the numbers of sources, kinds, languages and types stand for, and labels of types |

A text column is two files: `NAME.npy` (UTF-8) and `NAME_offsets.npy`. Offsets are int32 if that suffices, and
small numbers the smallest unsigned type. An index of an older version has neither kinds nor languages: all
its names are of the kind "" and of unknown language. `index.concept_facts` describes the files with parents
and definitions.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sapbert.arrays import Offsets, Texts, damaged, map_array, map_numbers, map_offsets
from sapbert.curies import canonical_prefix, parse_curie
from sapbert.errors import ConfigError, suggestion
from sapbert.hierarchy import Hierarchy
from sapbert.index.concept_facts import open_definitions, open_hierarchy
from sapbert.index.spellings import Spellings
from sapbert.vocab.settings import OWN

WORDS = "words.json"
COUNTED_LINKS, LINK_COUNTS = "counted_links.npy", "link_counts.npy"
_SMALL = (np.uint8, np.uint16, np.uint32)
_MAX_SUGGESTED = 3
_MAX_LISTED = 20
"""Number of names that an error suggests or lists."""


class Selection(NamedTuple):
    """The rows and links that a filter keeps."""

    rows: NDArray[np.bool_]
    """Rows with at least one kept link."""
    links: NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class NameTable:
    """The names of an index and the concepts they belong to."""

    texts: Texts | Spellings
    """Spelling of each row, to display.  # (rows,)"""
    folded: Texts
    """Folded name of each row.  # (rows,)"""
    concepts: Texts
    """Identifier of each concept.  # (concepts,)"""
    preferred: Texts
    """Name to display for each concept.  # (concepts,)"""
    aliases: Texts
    alias_concepts: NDArray[np.int32]
    link_offsets: Offsets
    """Where the links of each row start.  # (rows + 1,)"""
    link_concepts: NDArray[np.int32]
    """Concept number of each link, ascending within a row.  # (links,)"""
    link_sources: NDArray[np.integer[Any]]
    link_kinds: NDArray[np.integer[Any]]
    """Index of the kind of each link in `kinds`.  # (links,)"""
    link_languages: NDArray[np.integer[Any]]
    """Index of the language of each link in `languages`.  # (links,)"""
    link_preferred: NDArray[np.bool_]
    """Whether a link is the preferred name of its concept in its language.  # (links,)"""
    link_counts: NDArray[np.uint32]
    """How often the name was seen with this meaning; 0 if unknown.  # (links,)"""
    type_offsets: Offsets
    type_numbers: NDArray[np.int32]
    sources: tuple[str, ...]
    kinds: tuple[str, ...]
    """Kinds of names (`vocab.settings.KINDS`) that occur, in that order: "" is first."""
    languages: tuple[str, ...]
    types: tuple[str, ...]
    type_labels: Mapping[str, str]
    """Type code → its label, if the source has one."""
    hierarchy: Hierarchy
    """The parents of each concept, by number."""
    definitions: Texts | None
    """Definition of each concept, empty if it has none.  # (concepts,)"""

    @classmethod
    def open(cls, folder: Path) -> NameTable:
        """Map the files written by `write_name_table`."""
        try:
            words = json.loads((folder / WORDS).read_text(encoding="utf-8"))
        except ValueError as error:
            raise damaged(folder / WORDS, "it is not JSON") from error
        folded, concepts = Texts.open(folder, "folded"), Texts.open(folder, "concepts")
        aliases = Texts.open(folder, "aliases")
        sources, types = tuple(words["sources"]), tuple(words["types"])
        kinds, languages = tuple(words.get("kinds", [""])), tuple(words.get("languages", [""]))
        links = map_numbers(folder / "link_concepts.npy", np.int32, rows=None, below=len(concepts))
        type_numbers = map_numbers(folder / "type_numbers.npy", np.int32, rows=None, below=len(types))
        return cls(
            texts=_open_spellings(folder, folded),
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
                folder / "link_sources.npy", *_SMALL, np.int32, rows=len(links), below=len(sources)
            ),
            link_kinds=_map_optional(folder / "link_kinds.npy", len(links), below=len(kinds)),
            link_languages=_map_optional(folder / "link_languages.npy", len(links), below=len(languages)),
            link_preferred=_map_optional(folder / "link_preferred.npy", len(links), np.bool_),
            link_counts=_open_counts(folder, len(links)),
            type_offsets=map_offsets(folder / "type_offsets.npy", rows=len(concepts), end=len(type_numbers)),
            type_numbers=type_numbers,
            sources=sources,
            kinds=kinds,
            languages=languages,
            types=types,
            type_labels=words.get("type_labels", {}),
            hierarchy=open_hierarchy(folder, len(concepts)),
            definitions=open_definitions(folder, len(concepts)),
        )

    def __len__(self) -> int:
        return len(self.folded)

    def rows_of(self, folded: Sequence[str]) -> NDArray[np.int64]:
        """Return the row of each folded name; -1 if the vocabulary has no such name."""
        return self.folded.rows_of(folded)

    def concepts_of(self, curies: Sequence[str]) -> NDArray[np.int64]:
        """Return the number of each concept, given by identifier or alias; -1 if unknown."""
        numbers = self.concepts.rows_of(curies)
        missing = np.flatnonzero(numbers < 0)
        rows = self.aliases.rows_of([curies[number] for number in missing.tolist()])
        numbers[missing[rows >= 0]] = self.alias_concepts[rows[rows >= 0]]
        return numbers

    def resolve(self, curies: Sequence[str]) -> dict[str, tuple[str, ...]]:
        """Map ids, which may be aliases, to the id of their concept; unknown ids are left out."""
        numbers = self.concepts_of(curies).tolist()
        return {
            curie: (self.concepts[number],)
            for curie, number in zip(curies, numbers, strict=True)
            if number >= 0
        }

    def links_of(self, row: int) -> slice:
        """Return the position of the links of a row in `link_concepts` and `link_sources`."""
        return slice(int(self.link_offsets[row]), int(self.link_offsets[row + 1]))

    def links_behind(self, rows: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return all links of `rows`: for each link, the index of its row in `rows`, and its number."""
        begin = self.link_offsets[rows]
        count = self.link_offsets[rows + 1] - begin
        place = np.repeat(np.arange(len(rows)), count)
        return place, np.arange(len(place)) - np.repeat(np.cumsum(count) - count, count) + begin[place]

    def kind_of(self, row: int, concept: int, allowed: NDArray[np.bool_] | None = None) -> str:
        """Return the kind of the name in `row` as a name of `concept`: the first if sources differ.

        Only links in `allowed` count, if given.  # (links,)
        """
        span = self.links_of(row)
        named = self.link_concepts[span] == concept
        if allowed is not None:
            named &= allowed[span]
        return self.kinds[int(self.link_kinds[span][named].min())]

    def preferred_rows(self, language: str) -> NDArray[np.int64]:
        """Return the row of the preferred name of each concept in a language; -1 if it has none."""
        require_known([language], self.languages, "language")
        links = np.flatnonzero(self.link_preferred & (self.link_languages == self.languages.index(language)))
        rows = np.full(len(self.concepts), -1, np.int64)
        rows[self.link_concepts[links]] = np.searchsorted(self.link_offsets, links, side="right") - 1
        return rows

    def select(
        self,
        *,
        types: Sequence[str] = (),
        sources: Sequence[str] = (),
        kinds: Sequence[str] = (),
        prefixes: Sequence[str] = (),
        within: Sequence[str] = (),
        exclude: Sequence[str] = (),
    ) -> Selection | None:
        """Keep concepts with any of `types` and `prefixes`, and names of any of `sources` and `kinds`.

        `within` keeps these concepts and those below them, `exclude` the others. None without filters. A word
        that the index does not have is an error, not an empty result.
        """
        if not (types or sources or kinds or prefixes or within or exclude):
            return None
        concepts = np.ones(len(self.concepts), np.bool_)
        if types:
            concepts &= self._has_types(types)
        if prefixes:
            concepts &= self._has_prefixes(prefixes)
        if within:
            concepts &= self._is_within(within)
        if exclude:
            concepts &= ~self._is_within(exclude)
        links = concepts[self.link_concepts]
        if sources:
            links &= _mask(sources, self.sources, "source")[self.link_sources]
        if kinds:
            links &= _mask(kinds, [kind or OWN for kind in self.kinds], "kind")[self.link_kinds]
        # Every row has a link; otherwise `reduceat` would use the link of the next row.
        rows = np.logical_or.reduceat(links, self.link_offsets[:-1]) if len(self) else links
        return Selection(rows, links)

    def prefixes(self) -> list[str]:
        """Return the prefixes of all concepts, sorted."""
        prefixes = []
        start = 0
        while start < len(self.concepts):
            prefix = self.concepts[start].partition(":")[0]
            prefixes.append(prefix)
            start = self._span_of(prefix).stop
        return prefixes

    def definition(self, concept: int) -> str | None:
        """Return the definition of a concept, by its number; None if it has none."""
        return None if self.definitions is None else self.definitions[concept] or None

    def type_codes(self, types: Sequence[str]) -> list[str]:
        """Return the codes of types that are given by code or label, in any case."""
        known = {label.casefold(): code for code, label in self.type_labels.items()}
        return [word if word in self.types else known.get(word.casefold(), word) for word in types]

    def _is_within(self, curies: Sequence[str]) -> NDArray[np.bool_]:
        """Return for each concept whether it is one of `curies` or below one."""
        if not self.hierarchy:
            raise ConfigError(
                "the index has no parents, so it is not known what is below a concept; read the vocabulary "
                "and build the index again, if its source has parents"
            )
        numbers = self.concepts_of([parse_curie(curie) or curie for curie in curies]).tolist()
        if -1 in numbers:
            raise ConfigError(f"the index has no concept {curies[numbers.index(-1)]!r}")
        return self.hierarchy.within(numbers)

    def _has_types(self, types: Sequence[str]) -> NDArray[np.bool_]:
        """Return for each concept whether it has any of `types`."""
        selected = _mask(self.type_codes(types), self.types, "type")
        # A cumulative sum instead of `reduceat`, because a concept may have no type.
        before = np.concatenate([[0], np.cumsum(selected[self.type_numbers])])
        has: NDArray[np.bool_] = np.diff(before[self.type_offsets]) > 0
        return has

    def _has_prefixes(self, prefixes: Sequence[str]) -> NDArray[np.bool_]:
        known = self.prefixes()
        has = np.zeros(len(self.concepts), np.bool_)
        selected = _mask(list(map(canonical_prefix, prefixes)), known, "prefix")
        for prefix in itertools.compress(known, selected):
            has[self._span_of(prefix)] = True
        return has

    def _span_of(self, prefix: str) -> slice:
        """Return the range of the concepts with a prefix; they are adjacent, as identifiers are sorted."""
        after = chr(ord(":") + 1)
        return slice(*(self.concepts.position(f"{prefix}{end}".encode()) for end in (":", after)))


def _open_spellings(folder: Path, folded: Texts) -> Texts | Spellings:
    """Map the spellings; an index of an older version stores them as text."""
    if (folder / "texts.npy").exists():
        return Texts.open(folder, "texts", rows=len(folded))
    return Spellings.open(folder, folded)


def _open_counts(folder: Path, links: int) -> NDArray[np.uint32]:
    """Return the count of each link; few names have one, so only those are stored."""
    if not (folder / COUNTED_LINKS).exists():
        return np.broadcast_to(np.uint32(0), links)
    counted = map_numbers(folder / COUNTED_LINKS, np.int32, rows=None, below=links)
    counts = np.zeros(links, np.uint32)
    counts[counted] = map_array(folder / LINK_COUNTS, np.uint32, shape=(len(counted),))
    return counts


def _map_optional(path: Path, rows: int, *dtypes: type[np.generic], below: int | None = None) -> NDArray[Any]:
    """Map an array that an index of an older version does not have; then all its values are 0."""
    if not path.exists():
        return np.broadcast_to((dtypes or _SMALL)[0](0), rows)
    if below is None:
        return map_array(path, *dtypes, shape=(rows,))
    return map_numbers(path, *_SMALL, rows=rows, below=below)


def require_known(words: Sequence[str], known: Sequence[str], what: str) -> None:
    """Refuse a word that the index does not have; as a filter it would match nothing."""
    for word in words:
        if word not in known:
            hint = suggestion(word, known, limit=_MAX_SUGGESTED) or f"; it has {_listed(known)}"
            raise ConfigError(f"the index has no {what} {word!r}{hint}")


def _listed(known: Sequence[str]) -> str:
    """Return the first words of `known`, and how many follow."""
    more = len(known) - _MAX_LISTED
    listed = ", ".join(known[:_MAX_LISTED]) or "none"
    return f"{listed} and {more:,} more" if more > 0 else listed


def _mask(words: Sequence[str], known: Sequence[str], what: str) -> NDArray[np.bool_]:
    """Return for each word in `known` whether it is in `words`."""
    require_known(words, known, what)
    return np.isin(np.array(known, np.object_), np.array(words, np.object_))
