"""Look into an index: one concept, names by their beginning, and what lies around a mention.

An index keeps the concepts of each name but not the names of each concept; these are found by looking at all
links, some ten milliseconds for fifteen million. A table the other way round would take memory in every
worker for what curators do now and then.

Vectors of names come from the encoder, not from the index, whose search may be of any kind; a map needs a
few dozen.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sapbert.arrays import Texts
from sapbert.curies import canonical_prefix, parse_curie
from sapbert.index.name_table import require_known
from sapbert.linking.search import filter_masks, nearest_concepts
from sapbert.service.linkers import Served
from sapbert.service.schemas import Concept, Found, MapAnswer, Name, Neighbour, Point
from sapbert.text import fold

MOST_NAMES = 500
"""Names of one concept that are shown."""
_LOOKED_AT = 10_000
"""Names that a search passes over at most, where few of many are of the type that is wanted."""


class Naming(NamedTuple):
    """The rows that name a concept, in order, and the numbers of the sources that say so."""

    rows: list[int]
    sources: list[list[int]]


def namings(served: Served, concepts: Sequence[int]) -> list[Naming]:
    """Find the names of some concepts, all in one pass."""
    name_table = served.linker.name_table
    links = np.flatnonzero(np.isin(name_table.link_concepts, np.array(concepts, np.int32)))
    rows = np.searchsorted(name_table.link_offsets, links, side="right") - 1
    found: dict[int, dict[int, list[int]]] = {number: {} for number in concepts}
    owners, sources = name_table.link_concepts[links].tolist(), name_table.link_sources[links].tolist()
    for concept, row, source in zip(owners, rows.tolist(), sources, strict=True):
        found[concept].setdefault(row, []).append(source)
    return [Naming(list(found[number]), list(found[number].values())) for number in concepts]


def concept_of(served: Served, number: int, *, neighbours: int) -> Concept:
    """Describe a concept."""
    name_table = served.linker.name_table
    [naming] = namings(served, [number])
    words = [
        [name_table.sources[source] for source in own if name_table.sources[source]] for own in naming.sources
    ]
    names = [
        Name(name=name_table.texts[row], sources=own) for row, own in zip(naming.rows, words, strict=True)
    ]
    return Concept(
        concept_id=name_table.concepts[number],
        preferred_name=name_table.preferred[number],
        types=served.types_of(number),
        sources=sorted({word for own in words for word in own}),
        aliases=aliases_of(served, number),
        names=names[:MOST_NAMES],
        name_count=len(names),
        neighbours=_neighbours(served, number, neighbours),
    )


def aliases_of(served: Served, number: int) -> list[str]:
    """Return the other identifiers of a concept."""
    name_table = served.linker.name_table
    return name_table.aliases.take(np.flatnonzero(name_table.alias_concepts == number))


def _neighbours(served: Served, number: int, count: int) -> list[Neighbour]:
    """Return the concepts nearest to the preferred name of one, without itself."""
    if count < 1:
        return []
    linker, name_table = served.linker, served.linker.name_table
    text = fold(name_table.preferred[number])
    vectors = linker.encoder.encode([text])
    [near] = nearest_concepts(linker.search, name_table, [text], vectors, count + 1, filter_masks(name_table))
    return [
        Neighbour(
            concept_id=name_table.concepts[found.concept],
            preferred_name=name_table.preferred[found.concept],
            matched_name=name_table.texts[found.row],
            score=found.score,
        )
        for found in near
        if found.concept != number
    ][:count]


def search(
    served: Served,
    prefix: str,
    *,
    limit: int,
    types: Sequence[str] = (),
    namespaces: Sequence[str] = (),
    skip: int = 0,
) -> list[Found]:
    """Return concepts with a name, or an identifier, that begins with `prefix`, without the first `skip`.

    Filters are those of linking, and what the index does not know is refused as there; but few names are
    looked at, so each is asked for what it has, instead of all concepts first.
    """
    name_table = served.linker.name_table
    spaces = list(map(canonical_prefix, namespaces))
    require_known(types, name_table.types, "type")
    if spaces:
        require_known(spaces, name_table.prefixes(), "prefix")
    found: dict[int, Found] = {}
    for number, name in islice(_beginning(served, prefix), _LOOKED_AT):
        if len(found) == skip + limit:
            break
        curie, own = name_table.concepts[number], served.types_of(number)
        if (types and set(types).isdisjoint(own)) or (spaces and curie.partition(":")[0] not in spaces):
            continue
        row = Found(
            concept_id=curie, preferred_name=name_table.preferred[number], matched_name=name, types=own
        )
        found.setdefault(number, row)
    return list(found.values())[skip:]


def _beginning(served: Served, prefix: str) -> Iterator[tuple[int, str]]:
    """Yield concepts and what of them begins so: an identifier first, then names in order."""
    name_table = served.linker.name_table
    if ":" in prefix:
        curie = parse_curie(prefix) or prefix
        for number in _span(name_table.concepts, curie):
            yield number, name_table.preferred[number]
    text = fold(prefix)
    for row in _span(name_table.folded, text) if text else ():
        for number in name_table.link_concepts[name_table.links_of(row)].tolist():
            yield number, name_table.texts[row]


def _span(texts: Texts, beginning: str) -> range:
    """Where the strings that begin so lie, of strings that are in order of their bytes."""
    start = beginning.encode(errors="replace")
    # No byte of UTF-8 is 0xFF: this is above every string that begins so, and below all that follow.
    return range(texts.position(start), texts.position(start + b"\xff"))


def surroundings(served: Served, mention: str, *, names: int) -> MapAnswer:
    """Lay a mention and the names nearest to it into a plane."""
    linker, name_table = served.linker, served.linker.name_table
    text = fold(mention)
    depth = min(names, len(name_table))
    scores, rows = linker.search.search([text], linker.encoder.encode([text]), depth)
    near = [(row, score) for row, score in zip(rows[0].tolist(), scores[0].tolist(), strict=True) if row >= 0]
    vectors = linker.encoder.encode([text, *(name_table.folded[row] for row, _ in near)])
    places, explained = _plane(vectors)
    points = []
    for (row, score), (x, y) in zip(near, places[1:].tolist(), strict=True):
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
    return MapAnswer(x=places[0, 0], y=places[0, 1], explained=explained, points=points)


def _plane(vectors: NDArray[np.float32]) -> tuple[NDArray[np.float64], list[float]]:
    """Project onto the two directions in which vectors differ most, and say how much of it they show.

    Of the two signs of a direction that is taken in which the first vector is not negative, so that the same
    question draws the same map.  # (vectors, 2), 2
    """
    centred = vectors.astype(np.float64) - vectors.mean(axis=0, dtype=np.float64)
    directions, strengths, _ = np.linalg.svd(centred, full_matrices=False)
    places = np.zeros((len(vectors), 2))
    width = min(2, len(strengths))
    places[:, :width] = directions[:, :width] * strengths[:width]
    places *= np.where(places[0] < 0, -1.0, 1.0)
    total = float((strengths**2).sum()) or 1.0
    shares = [round(float(strength**2) / total, 4) for strength in strengths[:2]]
    return places.round(6), shares
