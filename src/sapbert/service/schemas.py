"""What goes over the wire: requests and answers of `/v1`.

Fields are called what the columns of `sapbert link` are called. Nothing unknown is taken, and nothing that is
only nearly of its type (`"k": true`): what was guessed in silence would give wrong links. Counts are checked
against the configured limits in `service.api`; the bounds here hold whatever the configuration says.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.config import JsonDict

MOST_CANDIDATES = 100
"""The largest k."""
MOST_WORDS = 100
"""Values of one filter."""
_EXAMPLE: JsonDict = {
    "concept_id": "mesh:D009203",
    "preferred_name": "Myocardial Infarction",
    "matched_name": "heart attack",
    "score": 0.630147,
    "confidence": None,
    "matched_by": "dense",
    "types": ["C"],
}

_MESSAGES = {"string_unicode": "half a surrogate pair is no text"}
"""For what pydantic says in words of its own, by its kind of error."""

Word = Annotated[str, Field(min_length=1, max_length=200)]
Words = Annotated[list[Word], Field(max_length=MOST_WORDS)]
# Without a bound, be it this one, half a surrogate pair would pass, which no file can hold.
Mention = Annotated[str, Field(min_length=0)]


def fault_of(first: Mapping[str, Any], *above: str) -> str:
    """Say where one of pydantic's errors lies, and what is wrong, without a word of what was sent."""
    where = ".".join(map(str, (*above, *first["loc"])))
    return f"{where}: {_MESSAGES.get(first['type'], first['msg'])}"


class _Request(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class Options(_Request):
    """How mentions are linked; the same as the options of `sapbert link`."""

    k: Annotated[int, Field(ge=1, le=MOST_CANDIDATES, description="Candidates of a mention.")] = 5
    threshold: Annotated[
        float | None,
        Field(ge=-1, le=1, allow_inf_nan=False, description="Candidates that score less are left out."),
    ] = None
    exact: Annotated[
        bool | None,
        Field(
            description="Whether names that equal the mention answer first; null: unless calibrated without."
        ),
    ] = None
    types: Annotated[Words, Field(description="Only concepts of these types.")] = []
    sources: Annotated[Words, Field(description="Only names from these sources.")] = []
    prefixes: Annotated[Words, Field(description="Only concepts whose identifier begins so: mesh.")] = []


class LinkRequest(Options):
    """Mentions to link."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"mentions": ["heart atack", "low mood"], "k": 3}]}
    )

    mentions: Annotated[list[Mention], Field(min_length=1, description="In any order; empty ones are NIL.")]


class Candidate(BaseModel):
    """A concept that a mention may mean; the best comes first."""

    model_config = ConfigDict(json_schema_extra={"examples": [_EXAMPLE]})

    concept_id: str
    preferred_name: str
    matched_name: Annotated[str, Field(description="The name that is nearest to the mention.")]
    score: Annotated[float, Field(description="Cosine, or what a hybrid index makes of two; 1 if exact.")]
    confidence: Annotated[
        float | None, Field(description="How probably it is right; of the first, if calibrated.")
    ]
    matched_by: Literal["exact", "dense", "hybrid"]
    types: list[str]


class Answer(BaseModel):
    """What a mention was linked to; no candidates means NIL."""

    mention: str
    candidates: list[Candidate]


class LinkAnswer(BaseModel):
    """One answer a mention, in the order asked."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "linker": "mesh",
                    "fingerprint": "9f2c41d0a7b1e6c3",
                    "answers": [{"mention": "heart atack", "candidates": [_EXAMPLE]}],
                }
            ]
        }
    )

    linker: str
    fingerprint: Annotated[str, Field(description="Of the index: the same index answers the same.")]
    answers: list[Answer]


class Name(BaseModel):
    """A name of a concept."""

    name: str
    sources: list[str]


class Neighbour(BaseModel):
    """A concept near another."""

    concept_id: str
    preferred_name: str
    matched_name: str
    score: float


class Concept(BaseModel):
    """A concept and what is near it."""

    concept_id: str
    preferred_name: str
    types: list[str]
    sources: list[str]
    aliases: Annotated[list[str], Field(description="Other identifiers of it.")]
    names: Annotated[list[Name], Field(description="The first of them, if there are very many.")]
    name_count: int
    neighbours: Annotated[list[Neighbour], Field(description="Nearest to its preferred name.")]


class Found(BaseModel):
    """A concept found by the beginning of a name or an identifier."""

    concept_id: str
    preferred_name: str
    matched_name: str
    types: list[str]


class SearchAnswer(BaseModel):
    """Concepts whose names begin as asked, in alphabetical order of these names."""

    results: list[Found]


class MapRequest(_Request):
    """The mention whose surroundings are drawn."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"mention": "heart atack", "names": 40}]})

    mention: Annotated[str, Field(min_length=1)]
    names: Annotated[int, Field(ge=2, le=200, description="How many of the nearest names.")] = 60


class Point(BaseModel):
    """A name on the map."""

    x: float
    y: float
    name: str
    concept_ids: list[str]
    preferred_name: Annotated[str, Field(description="Of the first concept.")]
    score: Annotated[float, Field(description="Cosine of mention and name.")]


class MapAnswer(BaseModel):
    """The nearest names in two dimensions (principal components); the mention lies at its own x and y."""

    x: float
    y: float
    explained: Annotated[
        list[float], Field(description="Share of the variance that x and that y show.", max_length=2)
    ]
    points: list[Point]


class Status(BaseModel):
    """Whether the service lives, or is ready."""

    status: Literal["ok", "busy"]


class LinkerAbout(BaseModel):
    """One linker of the service."""

    name: str
    title: str
    fingerprint: Annotated[str, Field(description="Of the index.")]
    encoder: Annotated[str, Field(description="Fingerprint of the encoder.")]
    names: int
    concepts: int
    prefixes: list[str]
    sources: list[str]
    types: list[str]
    calibrated: Annotated[bool, Field(description="Whether the best candidate has a confidence.")]


class LimitsAbout(BaseModel):
    """What a request may ask for."""

    body_bytes: int
    mentions: int
    mention_characters: int


class Version(BaseModel):
    """What runs here. The first linker answers where none is named."""

    sapbert: str
    linkers: list[LinkerAbout]
    limits: LimitsAbout


class Problem(BaseModel):
    """Why there is no answer, in one line."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"error": "k: at most 100"}]})

    error: str
