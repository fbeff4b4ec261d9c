"""Requests and answers of the reconciliation protocol."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, FailFast, Field, TypeAdapter

from sapbert.curies import parse_curie
from sapbert.linking.settings import LinkSettings
from sapbert.service import lookup
from sapbert.service.link_requests import Row, candidate_rows, link
from sapbert.service.linkers import ServedLinker
from sapbert.service.middleware.guard import RequestContext
from sapbert.service.schemas import MAX_CANDIDATES

PROPERTIES = {
    "preferred_name": "preferred name",
    "name": "names",
    "type": "types",
    "source": "sources",
    "alias": "other identifiers",
}
"""Properties for data extension; queries can be filtered by `type` and `source`."""
_MAX_SCORE = 100.0
"""Scores are cosines times 100, as users of OpenRefine expect."""


def _id_of(value: object) -> object:
    """Return the identifier of a value that may be an object with an `id` or the identifier itself."""
    return value["id"] if isinstance(value, dict) and "id" in value else value


def _text(value: object) -> object:
    """Return an empty text for an empty cell, which clients send as null or NaN."""
    return "" if value is None or value != value else value  # only NaN differs from itself


def _as_list(value: object) -> object:
    return value if isinstance(value, list) else [value]


Id = Annotated[str, BeforeValidator(_id_of)]
# Lists fail at their first invalid element: collecting an error for each would take seconds.
Ids = Annotated[list[Id], FailFast(), BeforeValidator(_as_list)]
Value = Annotated[bool | float | str, BeforeValidator(_id_of)]


class PropertyCondition(BaseModel):
    """A property and the values that are accepted for it."""

    pid: str
    v: Annotated[list[Value], FailFast(), BeforeValidator(_as_list)]


class EntityQuery(BaseModel):
    """One query; unknown fields are ignored."""

    query: Annotated[str, BeforeValidator(_text)] = ""
    type: Ids = []
    limit: Annotated[float, Field(ge=1, strict=True, allow_inf_nan=False)] = 5
    properties: Annotated[list[PropertyCondition], FailFast()] = []
    type_strict: Literal["any", "should", "all"] = "any"

    def mention(self) -> str:
        """Return the text to link: the query, or else the value of the property `name`."""
        return self.query or next(iter(self.values("name")), "")

    def values(self, pid: str) -> list[str]:
        """Return the accepted values of a property."""
        return [str(value) for condition in self.properties if condition.pid == pid for value in condition.v]


class ExtendedProperty(BaseModel):
    """A requested property."""

    id: str


class ExtensionRequest(BaseModel):
    """Concepts and the properties requested for them."""

    ids: Annotated[list[str], FailFast()]
    properties: Annotated[list[ExtendedProperty], FailFast()]


QUERY_BATCH = TypeAdapter(dict[str, EntityQuery])
EXTENSION = TypeAdapter(ExtensionRequest)


async def reconcile(
    context: RequestContext, served: ServedLinker, queries: dict[str, EntityQuery]
) -> dict[str, dict[str, list[Row]]]:
    """Answer a batch of queries; queries with the same settings are linked together."""
    longest = context.state.settings.limits.mention_characters
    groups: dict[tuple[int, LinkSettings], list[str]] = {}
    candidates: dict[str, list[Row]] = {name: [] for name in queries}
    for name, query in queries.items():
        settings = _settings(served, query)
        # A query that is too long gets no candidates, so that the rest of its batch does not fail.
        if settings is not None and 0 < len(query.mention()) <= longest:
            k = min(int(query.limit), MAX_CANDIDATES)
            groups.setdefault((k, settings), []).append(name)

    async def answer(k: int, settings: LinkSettings, names: list[str]) -> None:
        mentions = [queries[name].mention() for name in names]
        remaining = iter(names)
        async for chunk in link(context, served, mentions, k=k, settings=settings):
            for rows in chunk:
                candidates[next(remaining)] = rows

    await asyncio.gather(*(answer(k, settings, names) for (k, settings), names in groups.items()))
    return {name: {"result": _results(served, query, candidates[name])} for name, query in queries.items()}


def _settings(served: ServedLinker, query: EntityQuery) -> LinkSettings | None:
    """Return the link settings of a query; None if it requires a type or source that the index lacks."""
    types = _known_types(served, (*query.type, *query.values("type")))
    sources = tuple(query.values("source"))
    if types is None or any(source not in served.linker.name_table.sources for source in sources):
        return None
    return served.default_settings(types=types, sources=sources)


def _known_types(served: ServedLinker, types: Sequence[str]) -> list[str] | None:
    """Return the types that the index has; None if types are given but all are unknown.

    An unknown type is an error in `/v1`. In the protocol a type only restricts candidates, so a query with
    nothing but unknown types has no candidates.
    """
    requested = [word for word in types if word]
    known = [word for word in requested if word in served.linker.name_table.types]
    return None if requested and not known else known


def _results(served: ServedLinker, query: EntityQuery, rows: list[Row]) -> list[Row]:
    if query.type_strict == "all":
        required = {word for word in query.type if word}
        rows = [row for row in rows if required <= set(row["types"])]
    unique = sum(row["matched_by"] == "exact" for row in rows) == 1
    results = [_result(served, row, match=unique and row["matched_by"] == "exact") for row in rows]
    identified = _by_identifier(served, query.mention())
    if identified is None:
        return results
    others = [{**result, "match": False} for result in results if result["id"] != identified["id"]]
    return [identified, *others][: int(query.limit)]


def _result(served: ServedLinker, row: Row, *, match: bool) -> Row:
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
        "type": served.named_types(row["types"]),
        "score": round(_MAX_SCORE * row["score"], 4),
        "match": match,
        "features": features,
    }


def _by_identifier(served: ServedLinker, mention: str) -> Row | None:
    """Return the concept if the mention is its identifier, as the protocol requires; else None."""
    number = served.concept_number(mention) if parse_curie(mention) else None
    if number is None:
        return None
    name_table = served.linker.name_table
    return {
        "id": name_table.concepts[number],
        "name": name_table.preferred[number] or name_table.concepts[number],
        "description": "found by identifier",
        "type": served.named_types(served.types_of(number)),
        "score": _MAX_SCORE,
        "match": True,
        "features": [{"id": "exact", "value": True}],
    }


def suggest_concepts(
    served: ServedLinker, prefix: str, *, types: Sequence[str], skip: int, limit: int
) -> list[dict[str, Any]]:
    """Return concepts with a name or identifier that starts with `prefix`; if there is none, the nearest."""
    known = _known_types(served, types)
    if known is None:
        return []
    matches = lookup.search(served, prefix, limit=limit, types=known, skip=skip)
    rows = [match.model_dump() for match in matches]
    if not rows and not skip and prefix.strip():
        answers = served.linker.link([prefix], k=limit, settings=served.default_settings(types=known))
        rows = candidate_rows(served, answers[0])
    return [
        {
            "id": row["concept_id"],
            "name": row["preferred_name"] or row["concept_id"],
            "description": row["matched_name"],
            "notable": served.named_types(row["types"]),
        }
        for row in rows
    ]


def properties(served: ServedLinker) -> dict[str, str]:
    """Return the properties for data extension, with their titles: `PROPERTIES`, and a label per language."""
    languages = [code for code in served.linker.name_table.languages if code]
    labels = {_label_property(code): f"preferred name ({code})" for code in languages if len(languages) > 1}
    return PROPERTIES | labels


def _label_property(language: str) -> str:
    return f"preferred_name@{language}"


def extend(served: ServedLinker, body: ExtensionRequest) -> dict[str, Any]:
    """Return the requested properties of concepts; those of an unknown concept are empty."""
    numbers = {curie: served.concept_number(curie) for curie in body.ids}
    known = list(dict.fromkeys(number for number in numbers.values() if number is not None))
    values: dict[int | None, dict[str, list[str]]] = {
        number: _property_values(served, number, names)
        for number, names in zip(known, lookup.concept_names(served, known), strict=True)
    }
    titles = properties(served)
    requested = [each.id for each in body.properties]
    return {
        "meta": [{"id": pid, "name": titles.get(pid, pid)} for pid in requested],
        "rows": {
            curie: {
                pid: [{"str": value} for value in values.get(number, {}).get(pid, ())] for pid in requested
            }
            for curie, number in numbers.items()
        },
    }


def _property_values(served: ServedLinker, number: int, names: lookup.ConceptNames) -> dict[str, list[str]]:
    name_table = served.linker.name_table
    links = [link for row in names.links for link in row]
    return {
        "preferred_name": [name_table.preferred[number]],
        "name": [name_table.texts[row] for row in names.rows[: lookup.MAX_NAMES]],
        "type": served.types_of(number),
        "source": sorted(lookup.distinct_words(name_table.sources, name_table.link_sources[links])),
        "alias": lookup.aliases_of(served, number),
        **{
            _label_property(name_table.languages[name_table.link_languages[link]]): [name_table.texts[row]]
            for row, row_links in zip(names.rows, names.links, strict=True)
            for link in row_links
            if name_table.link_preferred[link]
        },
    }
