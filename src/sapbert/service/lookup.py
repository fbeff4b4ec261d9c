"""Queries on an index that are not linking: one concept, names by prefix, and the names near a mention.

An index stores the concepts of each name but not the names of each concept. They are found by scanning all
links, which takes about 10 ms for 15 million. An inverse table would take memory in every worker for
something that curators need only occasionally.

Vectors of names are encoded again instead of read from the index, because the index may store them in any
form; a map needs only a few dozen.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sapbert.arrays import Texts
from sapbert.curies import canonical_prefix, parse_curie
from sapbert.index.name_table import require_known
from sapbert.linking.search import filter_masks, nearest_concepts
from sapbert.service.linkers import ServedLinker
from sapbert.service.schemas import Concept, MapAnswer, Name, Neighbour, Point, SearchResult
from sapbert.text import fold

MAX_NAMES = 500
"""Names of one concept that are returned."""
_MAX_SCANNED = 10_000
"""Names that a search scans at most, if few of them match the filters."""


class ConceptNames(NamedTuple):
    """The rows of the name table that name a concept, in order, and the links of each to the concept."""

    rows: list[int]
    links: list[list[int]]


def concept_names(served: ServedLinker, concepts: Sequence[int]) -> list[ConceptNames]:
    """Find the names of several concepts in one pass."""
    name_table = served.linker.name_table
    links = np.flatnonzero(np.isin(name_table.link_concepts, np.array(concepts, np.int32)))
    rows = np.searchsorted(name_table.link_offsets, links, side="right") - 1
    by_concept: dict[int, dict[int, list[int]]] = {number: {} for number in concepts}
    linked = name_table.link_concepts[links].tolist()
    for concept, row, link in zip(linked, rows.tolist(), links.tolist(), strict=True):
        by_concept[concept].setdefault(row, []).append(link)
    return [ConceptNames(list(by_concept[number]), list(by_concept[number].values())) for number in concepts]


def distinct_words(words: Sequence[str], numbers: NDArray[np.integer[Any]]) -> list[str]:
    """Return the words that `numbers` stand for, each once, without the empty one."""
    return [words[number] for number in dict.fromkeys(numbers.tolist()) if words[number]]


def describe_concept(served: ServedLinker, number: int, *, neighbours: int) -> Concept:
    """Return the names, types, sources and nearest concepts of a concept."""
    name_table = served.linker.name_table
    [named] = concept_names(served, [number])
    names = [
        Name(
            name=name_table.texts[row],
            sources=distinct_words(name_table.sources, name_table.link_sources[links]),
            kind=name_table.kind_of(row, number),
            languages=distinct_words(name_table.languages, name_table.link_languages[links]),
        )
        for row, links in zip(named.rows, named.links, strict=True)
    ]
    return Concept(
        concept_id=name_table.concepts[number],
        preferred_name=name_table.preferred[number],
        types=served.types_of(number),
        sources=sorted({source for name in names for source in name.sources}),
        aliases=aliases_of(served, number),
        names=names[:MAX_NAMES],
        name_count=len(names),
        neighbours=_neighbours(served, number, neighbours),
    )


def aliases_of(served: ServedLinker, number: int) -> list[str]:
    """Return the other identifiers of a concept."""
    name_table = served.linker.name_table
    return name_table.aliases.take(np.flatnonzero(name_table.alias_concepts == number))


def _neighbours(served: ServedLinker, number: int, count: int) -> list[Neighbour]:
    """Return the concepts nearest to the preferred name of a concept, without the concept itself."""
    if count < 1:
        return []
    linker, name_table = served.linker, served.linker.name_table
    text = fold(name_table.preferred[number])
    vectors = linker.encoder.encode([text])
    [nearest] = nearest_concepts(
        linker.search, name_table, [text], vectors, count + 1, filter_masks(name_table)
    )
    return [
        Neighbour(
            concept_id=name_table.concepts[match.concept],
            preferred_name=name_table.preferred[match.concept],
            matched_name=name_table.texts[match.row],
            score=match.score,
        )
        for match in nearest
        if match.concept != number
    ][:count]


def search(
    served: ServedLinker,
    prefix: str,
    *,
    limit: int,
    types: Sequence[str] = (),
    namespaces: Sequence[str] = (),
    skip: int = 0,
) -> list[SearchResult]:
    """Return concepts with a name or an identifier that starts with `prefix`, without the first `skip`.

    Filters are those of linking, and a value that the index does not have is refused as there. Few names are
    scanned, so each is checked on its own instead of building a mask of all concepts.
    """
    name_table = served.linker.name_table
    allowed = list(map(canonical_prefix, namespaces))
    require_known(types, name_table.types, "type")
    if allowed:
        require_known(allowed, name_table.prefixes(), "prefix")
    results: dict[int, SearchResult] = {}
    for number, name in islice(_prefix_matches(served, prefix), _MAX_SCANNED):
        if len(results) == skip + limit:
            break
        concept_id, concept_types = name_table.concepts[number], served.types_of(number)
        if types and set(types).isdisjoint(concept_types):
            continue
        if allowed and concept_id.partition(":")[0] not in allowed:
            continue
        result = SearchResult(
            concept_id=concept_id,
            preferred_name=name_table.preferred[number],
            matched_name=name,
            types=concept_types,
        )
        results.setdefault(number, result)
    return list(results.values())[skip:]


def _prefix_matches(served: ServedLinker, prefix: str) -> Iterator[tuple[int, str]]:
    """Yield concepts with the name that matches: first by identifier, then by name in alphabetical order."""
    name_table = served.linker.name_table
    if ":" in prefix:
        curies = [parse_curie(prefix) or prefix]
    else:  # an identifier without its prefix has a digit
        spellings = dict.fromkeys((prefix, prefix.upper())) if any(map(str.isdecimal, prefix)) else ()
        namespaces = name_table.prefixes() if spellings else []
        curies = [f"{namespace}:{text}" for namespace in namespaces for text in spellings]
    for curie in curies:
        for number in _prefix_range(name_table.concepts, curie):
            yield number, name_table.preferred[number]
    text = fold(prefix)
    for row in _prefix_range(name_table.folded, text) if text else ():
        for number in name_table.link_concepts[name_table.links_of(row)].tolist():
            yield number, name_table.texts[row]


def _prefix_range(texts: Texts, prefix: str) -> range:
    """Return the positions of the strings that start with `prefix`; the strings are sorted by their bytes."""
    start = prefix.encode(errors="replace")
    # No byte of UTF-8 is 0xFF: this is above every string with the prefix, and below all that follow.
    return range(texts.position(start), texts.position(start + b"\xff"))


def nearby_names(served: ServedLinker, mention: str, *, names: int) -> MapAnswer:
    """Project a mention and its nearest names onto a plane."""
    linker, name_table = served.linker, served.linker.name_table
    text = fold(mention)
    depth = min(names, len(name_table))
    scores, rows = linker.search.search([text], linker.encoder.encode([text]), depth)
    near = [(row, score) for row, score in zip(rows[0].tolist(), scores[0].tolist(), strict=True) if row >= 0]
    vectors = linker.encoder.encode([text, *(name_table.folded[row] for row, _ in near)])
    positions, explained = _project(vectors)
    points = []
    for (row, score), (x, y) in zip(near, positions[1:].tolist(), strict=True):
        concepts = name_table.link_concepts[name_table.links_of(row)].tolist()
        points.append(
            Point(
                x=x,
                y=y,
                name=name_table.texts[row],
                concept_ids=[name_table.concepts[number] for number in dict.fromkeys(concepts)],
                preferred_name=name_table.preferred[concepts[0]],
                score=round(score, 6),
            )
        )
    return MapAnswer(x=positions[0, 0], y=positions[0, 1], explained=explained, points=points)


def _project(vectors: NDArray[np.float32]) -> tuple[NDArray[np.float64], list[float]]:
    """Return the first two principal components and the share of variance that each explains.

    The sign of a component is arbitrary; it is chosen so that the first vector is not negative. The same
    request therefore always returns the same map.  # (vectors, 2), 2
    """
    centred = vectors.astype(np.float64) - vectors.mean(axis=0, dtype=np.float64)
    directions, strengths, _ = np.linalg.svd(centred, full_matrices=False)
    positions = np.zeros((len(vectors), 2))
    width = min(2, len(strengths))
    positions[:, :width] = directions[:, :width] * strengths[:width]
    positions *= np.where(positions[0] < 0, -1.0, 1.0)
    total = float((strengths**2).sum()) or 1.0
    shares = [round(float(strength**2) / total, 4) for strength in strengths[:2]]
    return positions.round(6), shares
