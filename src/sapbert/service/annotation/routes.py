"""`POST /v1/annotate`: find concepts in texts.

An annotator is made for each combination of options and kept, because filters and rules take longer to
prepare than a text takes to annotate. It runs on the linking thread, one request at a time.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Request
from pydantic import BaseModel, ConfigDict, Field

from sapbert.annotation.annotator import Annotator
from sapbert.annotation.formats.annotated_document import annotation_fields
from sapbert.annotation.lexicons import open_lexicon
from sapbert.annotation.settings import AnnotateSettings
from sapbert.index.lexicon.lexicon import Lexicon
from sapbert.service.api import LinkerName
from sapbert.service.json_body import JsonRoute
from sapbert.service.link_requests import call, request_context, require_content_type
from sapbert.service.linkers import ServedLinker
from sapbert.service.middleware.limits import http_error
from sapbert.service.schemas import ErrorMessage, FilterValues

MAX_TEXTS = 1_000
_ANNOTATORS, _LEXICONS = 16, 8
"""Annotators and lexicons that are kept; those of an index that was replaced are dropped after a while."""


class AnnotateRequest(BaseModel):
    """Texts to annotate; the options are those of `sapbert annotate`."""

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        json_schema_extra={"examples": [{"texts": ["No fever, but chest pain."], "nested": False}]},
    )

    texts: Annotated[list[str], Field(min_length=1, max_length=MAX_TEXTS)]
    min_confidence: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)] = 0.5
    nested: Annotated[bool, Field(description="Keep annotations inside longer ones.")] = True
    abbreviations: Annotated[bool, Field(description="Resolve abbreviations that a text defines.")] = True
    context: Annotated[bool, Field(description="Find out whether mentions are negated and the like.")] = True
    types: Annotated[FilterValues, Field(description="Only concepts of these types.")] = []
    sources: Annotated[FilterValues, Field(description="Only names from these sources.")] = []
    kinds: Annotated[FilterValues, Field(description="Only names of these kinds.")] = []
    prefixes: Annotated[FilterValues, Field(description="Only concepts with these prefixes.")] = []


class Trigger(BaseModel):
    """A context of a mention and the phrase it is inferred from."""

    kind: Literal["negated", "possible", "hypothetical", "historical", "family"]
    start: int
    end: int
    phrase: str


class Annotation(BaseModel):
    """A mention found in a text."""

    start: Annotated[int, Field(description="Offset of the first character, in code points.")]
    end: Annotated[int, Field(description="Offset after the last character.")]
    mention: str
    concept_id: str
    preferred_name: str
    matched_name: str
    matched_by: str
    score: float
    confidence: float
    nested: bool
    expanded: str | None
    other_concept_ids: list[str]
    types: list[str]
    section: str | None
    negated: bool
    possible: bool
    hypothetical: bool
    historical: bool
    family: bool
    triggers: list[Trigger]


class AnnotatedText(BaseModel):
    """The annotations of a text, in order of their offsets."""

    annotations: list[Annotation]


class AnnotateAnswer(BaseModel):
    """The annotations of all texts, in the order of the request."""

    linker: str
    fingerprint: str
    answers: list[AnnotatedText]


async def _require_json(request: Request) -> None:
    require_content_type(request, "application/json")


_ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"model": ErrorMessage} for status in (400, 401, 404, 413, 415, 422, 429, 503)
}
router = APIRouter(prefix="/v1", route_class=JsonRoute)


@router.post(
    "/annotate",
    summary="Find concepts in texts",
    responses=_ERRORS,
    dependencies=[Depends(_require_json)],
)
async def annotate_texts(
    body: AnnotateRequest, request: Request, linker: LinkerName = None
) -> AnnotateAnswer:
    """Return the mentions of each text with offsets in code points, concept and context."""
    context = request_context(request)
    served = context.state.linker(linker)
    limit = context.state.settings.limits.mentions
    if len(body.texts) > limit:
        raise http_error(422, f"texts: at most {limit:,} per request")
    settings = AnnotateSettings(
        min_confidence=body.min_confidence,
        nested=body.nested,
        abbreviations=body.abbreviations,
        context=body.context,
        types=tuple(body.types),
        sources=tuple(body.sources),
        kinds=tuple(body.kinds),
        prefixes=tuple(body.prefixes),
    )

    def annotate() -> list[AnnotatedText]:
        found = _annotator(served, settings).annotate(body.texts)
        return [
            AnnotatedText(annotations=[Annotation(**annotation_fields(one)) for one in result.annotations])
            for result in found
        ]

    answers = await call(context, served, annotate)
    return AnnotateAnswer(linker=served.name, fingerprint=served.linker.fingerprint, answers=answers)


@lru_cache(_ANNOTATORS)
def _annotator(served: ServedLinker, settings: AnnotateSettings) -> Annotator:
    return Annotator(served.linker, _lexicon(served), settings)


@lru_cache(_LEXICONS)
def _lexicon(served: ServedLinker) -> Lexicon:
    return open_lexicon(served.index, served.linker.name_table, served.linker.fingerprint)
