"""JSON schemas of `/v1`: requests and answers.

Fields have the names of the columns of `sapbert link`. Unknown fields and values of the wrong type (`"k":
true`) are refused, because a silent guess would give wrong links. Configured limits are checked in
`service.link_requests`; the bounds here are fixed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, FailFast, Field
from pydantic.config import JsonDict

from sapbert.linking.candidate import MatchedBy

MAX_CANDIDATES = 100
"""Largest k."""
MAX_FILTER_VALUES = 100
"""Values per filter."""
_EXAMPLE: JsonDict = {
    "concept_id": "mesh:D009203",
    "preferred_name": "Myocardial Infarction",
    "matched_name": "heart attack",
    "name_kind": "",
    "score": 0.630147,
    "confidence": None,
    "matched_by": "dense",
    "types": ["C"],
}

_MESSAGES = {"string_unicode": "not valid Unicode: a surrogate without its pair"}
"""Replacements for messages of pydantic, by type of error."""

FilterValue = Annotated[str, Field(min_length=1, max_length=200)]
# Lists fail at their first invalid element: collecting an error for each would take seconds.
FilterValues = Annotated[list[FilterValue], FailFast(), Field(max_length=MAX_FILTER_VALUES)]
# Pydantic accepts unpaired surrogates, which cannot be encoded, unless the string has some length bound.
Mention = Annotated[str, Field(min_length=0)]


def _whole(value: object) -> object:
    """Return 5 for 5.0: JSON has one type of number, and some clients write every number as a float."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


_WHOLE = BeforeValidator(_whole)


def validation_message(error: Mapping[str, Any], *parents: str) -> str:
    """Return location and message of one of pydantic's errors, without the value that was sent."""
    where = ".".join(map(str, (*parents, *error["loc"])))
    return f"{where}: {_MESSAGES.get(error['type'], error['msg'])}"


class _Request(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class LinkOptions(_Request):
    """Options of linking; the same as those of `sapbert link`."""

    k: Annotated[int, Field(ge=1, le=MAX_CANDIDATES, description="Candidates per mention."), _WHOLE] = 5
    threshold: Annotated[
        float | None,
        Field(ge=-1, le=1, allow_inf_nan=False, description="Drop candidates with a lower score."),
    ] = None
    exact: Annotated[
        bool | None,
        Field(
            description="Whether names that equal the mention rank first. null: true, unless the calibration "
            "was made without exact matches."
        ),
    ] = None
    types: Annotated[FilterValues, Field(description="Only concepts of these types.")] = []
    sources: Annotated[FilterValues, Field(description="Only names from these sources.")] = []
    kinds: Annotated[
        FilterValues,
        Field(
            description="Only names of these kinds: own, synonym, abbreviation, brand, lay, spelling, "
            "translation."
        ),
    ] = []
    prefixes: Annotated[
        FilterValues,
        Field(description="Only concepts whose identifier has one of these prefixes, such as mesh."),
    ] = []
    language: Annotated[
        FilterValue | None,
        Field(description="Language of preferred_name, such as es, for concepts that have a name in it."),
    ] = None


class LinkRequest(LinkOptions):
    """Mentions to link."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"mentions": ["heart atack", "low mood"], "k": 3}]}
    )

    mentions: Annotated[
        list[Mention], FailFast(), Field(min_length=1, description="Texts to link. An empty text is NIL.")
    ]


class Candidate(BaseModel):
    """A concept that a mention may refer to."""

    model_config = ConfigDict(json_schema_extra={"examples": [_EXAMPLE]})

    concept_id: str
    preferred_name: str
    matched_name: Annotated[str, Field(description="The name of the concept that is nearest to the mention.")]
    name_kind: Annotated[
        str,
        Field(
            description="Kind of the matched name: synonym, abbreviation, brand, lay, spelling or "
            "translation; empty for a name of the vocabulary itself."
        ),
    ]
    score: Annotated[
        float,
        Field(description="Cosine similarity; in a hybrid index combined with the n-gram score; 1 if exact."),
    ]
    confidence: Annotated[
        float | None,
        Field(
            description="Probability that the candidate is correct. Only for the first candidate of a "
            "calibrated linker, else null."
        ),
    ]
    matched_by: Annotated[
        MatchedBy,
        Field(
            description="exact: the same name; words: the same words; dense: cosine; hybrid: cosine and "
            "n-grams."
        ),
    ]
    types: list[str]


class Answer(BaseModel):
    """The candidates of one mention."""

    mention: str
    candidates: Annotated[list[Candidate], Field(description="Best first; empty means NIL.")]


class LinkAnswer(BaseModel):
    """One answer per mention, in the order of the request."""

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
    fingerprint: Annotated[str, Field(description="Fingerprint of the index; changes with its content.")]
    answers: list[Answer]


class Name(BaseModel):
    """A name of a concept."""

    name: str
    sources: list[str]
    kind: Annotated[str, Field(description="As name_kind of a candidate.")]
    languages: Annotated[list[str], Field(description="ISO 639-1.")]


class Neighbour(BaseModel):
    """A concept close to another one."""

    concept_id: str
    preferred_name: str
    matched_name: str
    score: float


class Concept(BaseModel):
    """A concept with its names and nearest concepts."""

    concept_id: str
    preferred_name: str
    types: list[str]
    sources: list[str]
    aliases: Annotated[list[str], Field(description="Other identifiers of the concept.")]
    names: Annotated[list[Name], Field(description="The first 500 names.")]
    name_count: Annotated[int, Field(description="Number of all names.")]
    neighbours: Annotated[
        list[Neighbour], Field(description="The concepts nearest to the preferred name, best first.")
    ]


class SearchResult(BaseModel):
    """A concept with a name or an identifier that starts with the prefix."""

    concept_id: str
    preferred_name: str
    matched_name: str
    types: list[str]


class SearchAnswer(BaseModel):
    """Concepts that match the prefix, in alphabetical order of the matching names."""

    results: list[SearchResult]


class MapRequest(_Request):
    """The mention in the middle of the map."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"mention": "heart atack", "names": 40}]})

    mention: Annotated[str, Field(min_length=1)]
    names: Annotated[int, Field(ge=2, le=200, description="Number of nearest names."), _WHOLE] = 60


class Point(BaseModel):
    """A name on the map."""

    x: float
    y: float
    name: str
    concept_ids: list[str]
    preferred_name: Annotated[str, Field(description="Preferred name of the first concept.")]
    score: Annotated[float, Field(description="Score of mention and name.")]


class MapAnswer(BaseModel):
    """The nearest names in two dimensions (principal components)."""

    x: Annotated[float, Field(description="Position of the mention.")]
    y: Annotated[float, Field(description="Position of the mention.")]
    explained: Annotated[
        list[float], Field(description="Share of the variance explained by x and by y.", max_length=2)
    ]
    points: list[Point]


class Status(BaseModel):
    """Health of the service."""

    status: Literal["ok", "busy"]


class LinkerInfo(BaseModel):
    """One linker of the service."""

    name: str
    title: str
    fingerprint: Annotated[str, Field(description="Fingerprint of the index.")]
    encoder: Annotated[str, Field(description="Fingerprint of the encoder.")]
    names: int
    concepts: int
    prefixes: list[str]
    sources: list[str]
    kinds: Annotated[list[str], Field(description="Kinds of names; own: of the vocabulary itself.")]
    languages: Annotated[list[str], Field(description="Languages of names, ISO 639-1.")]
    types: list[str]
    calibrated: Annotated[bool, Field(description="Whether the best candidate has a confidence.")]


class LimitsInfo(BaseModel):
    """Limits of a request."""

    body_bytes: int
    mentions: int
    mention_characters: int


class Version(BaseModel):
    """Version, linkers and limits of the service. The first linker is the default."""

    sapbert: str
    linkers: list[LinkerInfo]
    limits: LimitsInfo


class ErrorMessage(BaseModel):
    """An error in one line."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"error": "k: Input should be less than or equal to 100"}]}
    )

    error: str
