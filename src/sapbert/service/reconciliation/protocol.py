"""What the reconciliation protocol asks, and the answers in its shapes."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, Field, TypeAdapter

from sapbert.curies import parse_curie
from sapbert.linking.settings import LinkSettings
from sapbert.service import lookup
from sapbert.service.link_requests import Row, link, rows_of
from sapbert.service.linkers import Served
from sapbert.service.middleware.guard import Exchange
from sapbert.service.schemas import MOST_CANDIDATES

PROPERTIES = {
    "preferred_name": "preferred name",
    "name": "names",
    "type": "types",
    "source": "sources",
    "alias": "other identifiers",
}
"""What data can be extended with, and, of types and sources, what queries can be restricted by."""
_SURE = 100.0
"""Scores are hundredfold cosines, as people expect them in OpenRefine."""


def _id_of(value: object) -> object:
    """Return the identifier of what may be given by it alone."""
    return value["id"] if isinstance(value, dict) and "id" in value else value


def _listed(value: object) -> object:
    return value if isinstance(value, list) else [value]


Id = Annotated[str, BeforeValidator(_id_of)]
Ids = Annotated[list[Id], BeforeValidator(_listed)]
Value = Annotated[bool | float | str, BeforeValidator(_id_of)]


class Condition(BaseModel):
    """A property and the values it should have."""

    pid: str
    v: Annotated[list[Value], BeforeValidator(_listed)]


class EntityQuery(BaseModel):
    """One question; clients may send more than is known here."""

    query: str = ""
    type: Ids = []
    limit: Annotated[float, Field(ge=1, strict=True, allow_inf_nan=False)] = 5
    properties: list[Condition] = []
    type_strict: Literal["any", "should", "all"] = "any"

    def mention(self) -> str:
        """Return what is looked for; it may be given as a name instead."""
        return self.query or next(iter(self.values("name")), "")

    def values(self, pid: str) -> list[str]:
        """Return the values that a property should have."""
        return [str(value) for condition in self.properties if condition.pid == pid for value in condition.v]


class ExtendedProperty(BaseModel):
    """A property asked for."""

    id: str


class Extension(BaseModel):
    """Concepts and what is wanted of them."""

    ids: list[str]
    properties: list[ExtendedProperty]


QueryBatch = TypeAdapter(dict[str, EntityQuery])


async def reconcile(
    exchange: Exchange, served: Served, queries: dict[str, EntityQuery]
) -> dict[str, dict[str, list[Row]]]:
    """Answer a batch; queries that want the same go together."""
    longest = exchange.state.settings.limits.mention_characters
    groups: dict[tuple[int, LinkSettings], list[str]] = {}
    found: dict[str, list[Row]] = {name: [] for name in queries}
    for name, query in queries.items():
        settings = _settings(served, query)
        # What is too long for a mention is none; the others of its batch should not fail for it.
        if settings is not None and 0 < len(query.mention()) <= longest:
            k = min(int(query.limit), MOST_CANDIDATES)
            groups.setdefault((k, settings), []).append(name)

    async def answer(k: int, settings: LinkSettings, names: list[str]) -> None:
        mentions = [queries[name].mention() for name in names]
        waiting = iter(names)
        async for piece in link(exchange, served, mentions, k=k, settings=settings):
            for rows in piece:
                found[next(waiting)] = rows

    await asyncio.gather(*(answer(k, settings, names) for (k, settings), names in groups.items()))
    return {name: {"result": _candidates(served, query, found[name])} for name, query in queries.items()}


def _settings(served: Served, query: EntityQuery) -> LinkSettings | None:
    """Return how to link; None where a condition names what the index does not have."""
    types = _known_types(served, (*query.type, *query.values("type")))
    sources = tuple(query.values("source"))
    if types is None or any(source not in served.linker.name_table.sources for source in sources):
        return None
    return served.settings(types=types, sources=sources)


def _known_types(served: Served, types: Sequence[str]) -> list[str] | None:
    """Return the types that the index has; None where some are wanted and it has none of them.

    To the protocol a type is no more than what candidates may have, so here an unknown one is no error as it
    is in `/v1`: what has none of the types asked for has no candidates.
    """
    wanted = [word for word in types if word]
    known = [word for word in wanted if word in served.linker.name_table.types]
    return None if wanted and not known else known


def _candidates(served: Served, query: EntityQuery, rows: list[Row]) -> list[Row]:
    if query.type_strict == "all":
        wanted = {word for word in query.type if word}
        rows = [row for row in rows if wanted <= set(row["types"])]
    alone = sum(row["matched_by"] == "exact" for row in rows) == 1
    found = [_candidate(row, match=alone and row["matched_by"] == "exact") for row in rows]
    named = _by_identifier(served, query.mention())
    if named is None:
        return found
    others = [{**row, "match": False} for row in found if row["id"] != named["id"]]
    return [named, *others][: int(query.limit)]


def _candidate(row: Row, *, match: bool) -> Row:
    features = [
        {"id": "cosine", "value": row["score"]},
        {"id": "exact", "value": row["matched_by"] == "exact"},
    ]
    if row["confidence"] is not None:
        features.append({"id": "confidence", "value": row["confidence"]})
    return {
        "id": row["concept_id"],
        "name": row["preferred_name"] or row["concept_id"],
        "description": f"matched name: {row['matched_name']}",
        "type": _types(row["types"]),
        "score": round(_SURE * row["score"], 4),
        "match": match,
        "features": features,
    }


def _by_identifier(served: Served, mention: str) -> Row | None:
    """Return the concept whose identifier was asked for, as the protocol expects."""
    number = served.number_of(mention) if parse_curie(mention) else None
    if number is None:
        return None
    name_table = served.linker.name_table
    return {
        "id": name_table.concepts[number],
        "name": name_table.preferred[number] or name_table.concepts[number],
        "description": "asked for by identifier",
        "type": _types(served.types_of(number)),
        "score": _SURE,
        "match": True,
        "features": [{"id": "exact", "value": True}],
    }


def _types(words: Sequence[str]) -> list[dict[str, str]]:
    return [{"id": word, "name": word} for word in words]


def suggest_concepts(
    served: Served, prefix: str, *, types: Sequence[str], skip: int, limit: int
) -> list[dict[str, Any]]:
    """Return concepts that begin so; where there is none, the nearest: people type anything."""
    known = _known_types(served, types)
    if known is None:
        return []
    found = [row.model_dump() for row in lookup.search(served, prefix, limit=limit, types=known, skip=skip)]
    if not found and not skip and prefix.strip():
        answers = served.linker.link([prefix], k=limit, settings=served.settings(types=known))
        found = rows_of(served, answers[0])
    return [
        {
            "id": row["concept_id"],
            "name": row["preferred_name"] or row["concept_id"],
            "description": row["matched_name"],
            "notable": _types(row["types"]),
        }
        for row in found
    ]


def extend(served: Served, asked: Extension) -> dict[str, Any]:
    """Return the properties of concepts; of one that is unknown, none."""
    numbers = {curie: served.number_of(curie) for curie in asked.ids}
    known = list(dict.fromkeys(number for number in numbers.values() if number is not None))
    values: dict[int | None, dict[str, list[str]]] = {
        number: _values(served, number, naming)
        for number, naming in zip(known, lookup.namings(served, known), strict=True)
    }
    wanted = [wish.id for wish in asked.properties]
    return {
        "meta": [{"id": pid, "name": PROPERTIES.get(pid, pid)} for pid in wanted],
        "rows": {
            curie: {pid: [{"str": word} for word in values.get(number, {}).get(pid, ())] for pid in wanted}
            for curie, number in numbers.items()
        },
    }


def _values(served: Served, number: int, naming: lookup.Naming) -> dict[str, list[str]]:
    name_table = served.linker.name_table
    sources = sorted({name_table.sources[source] for own in naming.sources for source in own} - {""})
    return {
        "preferred_name": [name_table.preferred[number]],
        "name": [name_table.texts[row] for row in naming.rows[: lookup.MOST_NAMES]],
        "type": served.types_of(number),
        "source": sources,
        "alias": lookup.aliases_of(served, number),
    }
