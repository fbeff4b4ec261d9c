"""Read SNOMED CT: Release Format 2, the Snapshot files of a release folder or zip.

A release also contains Full and Delta files with the history of every component; a Snapshot contains the
current state. A national edition may be an extension beside the International Edition. A component can then
be in both, and the row with the later `effectiveTime` is used.

Every concept has a fully specified name, `Heart attack (disorder)`. Texts never contain the tag in
parentheses, so it becomes the type of the concept and the rest a name; the name with the tag is not kept.
Language refsets say which synonym is preferred (American and British English have one each). Active `Is a`
relationships are parents; text definitions are definitions, not names.
"""

from __future__ import annotations

import re
from pathlib import Path

import polars as pl

from sapbert.errors import ConfigError, FormatError
from sapbert.vocab.delimited import Layout
from sapbert.vocab.input_files import InputFile, InputReader, Release
from sapbert.vocab.readers.settings import SnomedSettings
from sapbert.vocab.writer import VocabularyWriter

FULLY_SPECIFIED = "900000000000003001"
SYNONYM = "900000000000013009"
PREFERRED = "900000000000548007"
IS_A = "116680003"

_CONCEPT = ("id", "effectiveTime", "active", "moduleId", "definitionStatusId")
_DESCRIPTION = (
    "id", "effectiveTime", "active", "moduleId", "conceptId", "languageCode", "typeId", "term",
    "caseSignificanceId",
)  # fmt: skip
_LANGUAGE_REFSET = (
    "id", "effectiveTime", "active", "moduleId", "refsetId", "referencedComponentId", "acceptabilityId",
)  # fmt: skip
_RELATIONSHIP = (
    "id", "effectiveTime", "active", "moduleId", "sourceId", "destinationId", "relationshipGroup", "typeId",
    "characteristicTypeId", "modifierId",
)  # fmt: skip

_TAGGED = r"^\s*(.*\S)\s*\(([^()]+)\)\s*$"
_CURIE = "snomedct:" + pl.col("conceptId")


def read_snomed(path: Path, writer: VocabularyWriter, inputs: InputReader, settings: SnomedSettings) -> None:
    """Read the Snapshot of a SNOMED CT release: a folder, a zip, or a folder with several editions."""
    release = Release(path)
    concepts = _find(release, "Concept", r"x?sct2_Concept_\w*Snapshot.*\.txt")
    descriptions = _find(release, "Description", r"x?sct2_Description_\w*Snapshot.*\.txt")
    refsets = release.find_all(r"x?der2_cRefset_\w*Language\w*Snapshot.*\.txt")
    relationships = release.find_all(r"x?sct2_Relationship_\w*Snapshot.*\.txt")
    definitions = release.find_all(r"x?sct2_TextDefinition_\w*Snapshot.*\.txt")
    _refuse_two_releases(release, [*concepts, *descriptions, *refsets, *relationships, *definitions])
    active = _latest(concepts, _CONCEPT, ["id"], inputs).filter("active")
    columns = ["id", "conceptId", "languageCode", "typeId", "term"]
    names = _active_names(active, _latest(descriptions, _DESCRIPTION, columns, inputs), writer)
    columns = ["refsetId", "referencedComponentId", "acceptabilityId"]
    preferences = _latest(refsets, _LANGUAGE_REFSET, columns, inputs).filter("active")
    _add_types(names, writer)
    names = _of_languages(names, settings.languages)
    _add_names(_ranked(names, preferences, settings.refsets, writer), writer)
    columns = ["sourceId", "destinationId", "typeId"]
    _add_parents(_latest(relationships, _RELATIONSHIP, columns, inputs), writer)
    columns = ["conceptId", "languageCode", "term"]
    _add_definitions(_latest(definitions, _DESCRIPTION, columns, inputs), settings.languages, writer)


def _find(release: Release, what: str, pattern: str) -> list[InputFile]:
    if sources := release.find_all(pattern):
        return sources
    raise FormatError(
        release.path,
        None,
        f"contains no sct2_{what}_Snapshot*.txt",
        hint="give the release zip or its Snapshot folder; Full and Delta contain the history",
    )


def _refuse_two_releases(release: Release, sources: list[InputFile]) -> None:
    """Refuse files whose names differ only in their date."""
    undated: dict[str, str] = {}
    for source in sources:
        known = undated.setdefault(re.sub(r"_\d{8}(?=\.txt$)", "", source.name), source.name)
        if known != source.name:
            raise FormatError(
                release.path, None, f"contains both {known} and {source.name}", hint="give one release"
            )


def _latest(
    sources: list[InputFile], layout: tuple[str, ...], columns: list[str], inputs: InputReader
) -> pl.DataFrame:
    """Return the current row of each component, active or not."""
    several = len(sources) > 1
    # Identifiers of refset rows are long and many; they are read only if there are several files.
    columns_read = list(dict.fromkeys(["active", *columns, *(["id", "effectiveTime"] if several else [])]))
    frames = [pl.DataFrame(schema=dict.fromkeys(columns_read, pl.String))]
    for source in sources:
        shape = Layout("\t", layout, header=True, hint=f"is this {source.name}?")
        frames.extend(inputs.frames(source, shape, columns_read))
    rows = pl.concat(frames)
    if several:
        rows = rows.sort("effectiveTime", maintain_order=True).unique("id", keep="last", maintain_order=True)
    return rows.with_columns(pl.col("active") == "1")


def _active_names(
    active_concepts: pl.DataFrame, descriptions: pl.DataFrame, writer: VocabularyWriter
) -> pl.DataFrame:
    writer.count("descriptions read", descriptions.height)
    active = descriptions.filter("active")
    writer.count("inactive descriptions dropped", descriptions.height - active.height)
    kept = active.join(active_concepts, left_on="conceptId", right_on="id", how="semi")
    writer.count("descriptions of inactive concepts dropped", active.height - kept.height)
    return kept.filter(pl.col("typeId").is_in([FULLY_SPECIFIED, SYNONYM])).with_columns(
        pl.col("languageCode").str.to_lowercase()
    )


def _of_languages(names: pl.DataFrame, languages: tuple[str, ...]) -> pl.DataFrame:
    requested = {language.lower() for language in languages}
    if "all" in requested:
        return names
    present = set(names["languageCode"].unique())
    if unknown := sorted(requested - present):
        raise ConfigError(
            f"the release has no name in {', '.join(unknown)}; it has {', '.join(sorted(present)) or 'none'}"
        )
    return names.filter(pl.col("languageCode").is_in(requested))


def _ranked(
    names: pl.DataFrame, preferences: pl.DataFrame, refsets: tuple[str, ...], writer: VocabularyWriter
) -> pl.DataFrame:
    """Add the rank of each name; if `refsets` are given, drop the names that none of them accepts."""
    ranks = (
        preferences.join(_weights(preferences, refsets), on="refsetId")
        .group_by("referencedComponentId")
        .agg(rank=pl.col("weight").filter(pl.col("acceptabilityId") == PREFERRED).sum())
    )
    ranked = names.join(ranks, left_on="id", right_on="referencedComponentId", how="left")
    if refsets:
        accepted = ranked.filter(pl.col("rank").is_not_null())
        writer.count("descriptions in no chosen refset dropped", ranked.height - accepted.height)
        ranked = accepted
    # Refsets also mark a fully specified name as preferred; it is used only if they prefer no synonym.
    synonym = pl.col("typeId") == SYNONYM
    rank = pl.when(~synonym).then(1).when(pl.col("rank") > 0).then(pl.col("rank") + 1).otherwise(0)
    return ranked.with_columns(rank=rank.cast(pl.Int32))


def _weights(preferences: pl.DataFrame, chosen: tuple[str, ...]) -> pl.DataFrame:
    """Return the weight of each refset: a chosen one outweighs all after it; by default all are equal."""
    present = preferences["refsetId"].unique().sort().to_list()
    if unknown := sorted(set(chosen) - set(present)):
        found = ", ".join(present) or "none"
        raise ConfigError(f"the release has no language refset {', '.join(unknown)}; it has {found}")
    weights = {refset: 1 << place for place, refset in enumerate(reversed(chosen))} or dict.fromkeys(
        present, 1
    )
    columns = {"refsetId": list(weights), "weight": list(weights.values())}
    return pl.DataFrame(columns, schema={"refsetId": pl.String, "weight": pl.Int64})


def _add_types(names: pl.DataFrame, writer: VocabularyWriter) -> None:
    """Add semantic tags as types, also from fully specified names that are not kept."""
    specified = names.filter(pl.col("typeId") == FULLY_SPECIFIED)
    tagged = specified.select("conceptId", "languageCode", type=pl.col("term").str.extract(_TAGGED, 2))
    # Translations translate the tag too; a type must have one spelling in all languages.
    english = pl.col("languageCode") == "en"
    one = tagged.drop_nulls().filter(english | ~english.any().over("conceptId"))
    writer.add_facts("types", one.select("type", concept_id=_CURIE))


def _add_names(names: pl.DataFrame, writer: VocabularyWriter) -> None:
    untagged = pl.col("term").str.extract(_TAGGED, 1).fill_null(pl.col("term"))
    name = pl.when(pl.col("typeId") == FULLY_SPECIFIED).then(untagged).otherwise("term")
    rows = names.select(
        "rank", concept_id=_CURIE, name=name, language="languageCode", source=pl.lit("snomedct")
    )
    writer.add(rows.sort("concept_id"))


def _add_parents(relationships: pl.DataFrame, writer: VocabularyWriter) -> None:
    is_a = relationships.filter("active", pl.col("typeId") == IS_A)
    parents = is_a.select(
        concept_id="snomedct:" + pl.col("sourceId"), parent_id="snomedct:" + pl.col("destinationId")
    )
    writer.add_facts("parents", parents.with_columns(relation=pl.lit("is_a")))


def _add_definitions(definitions: pl.DataFrame, languages: tuple[str, ...], writer: VocabularyWriter) -> None:
    requested = {language.lower() for language in languages}
    language = pl.col("languageCode").str.to_lowercase()
    kept = definitions.filter("active", pl.lit("all" in requested) | language.is_in(requested))
    writer.add_definitions(
        kept.select(concept_id=_CURIE, text="term", language=language, source=pl.lit("snomedct"))
    )
