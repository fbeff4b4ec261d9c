"""Read SNOMED CT: Release Format 2, the Snapshot files of a release folder or zip.

A release also holds Full and Delta files, the history of every component; a Snapshot says what holds now.
A national edition may come as an extension beside the International one. Then a component can stand in both,
and the row of the later `effectiveTime` holds.

Every concept has a fully specified name, `Heart attack (disorder)`. Nobody writes the tag in brackets, so it
becomes the concept's type and the rest is a name like another; with the tag it is not taken. Which synonym is
preferred, language refsets say (American and British English have one each). Text definitions are no names.
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

_CONCEPT = ("id", "effectiveTime", "active", "moduleId", "definitionStatusId")
_DESCRIPTION = (
    "id", "effectiveTime", "active", "moduleId", "conceptId", "languageCode", "typeId", "term",
    "caseSignificanceId",
)  # fmt: skip
_LANGUAGE_REFSET = (
    "id", "effectiveTime", "active", "moduleId", "refsetId", "referencedComponentId", "acceptabilityId",
)  # fmt: skip

_TAGGED = r"^\s*(.*\S)\s*\(([^()]+)\)\s*$"
_CURIE = "snomedct:" + pl.col("conceptId")


def read_snomed(path: Path, writer: VocabularyWriter, inputs: InputReader, settings: SnomedSettings) -> None:
    """Read the Snapshot of a SNOMED CT release: a folder, a zip, or a folder with several editions."""
    release = Release(path)
    concepts = _find(release, "Concept", r"x?sct2_Concept_\w*Snapshot.*\.txt")
    descriptions = _find(release, "Description", r"x?sct2_Description_\w*Snapshot.*\.txt")
    refsets = release.find_all(r"x?der2_cRefset_\w*Language\w*Snapshot.*\.txt")
    _refuse_two_releases(release, [*concepts, *descriptions, *refsets])
    active = _latest(concepts, _CONCEPT, ["id"], inputs).filter("active")
    columns = ["id", "conceptId", "languageCode", "typeId", "term"]
    names = _active_names(active, _latest(descriptions, _DESCRIPTION, columns, inputs), writer)
    columns = ["refsetId", "referencedComponentId", "acceptabilityId"]
    preferences = _latest(refsets, _LANGUAGE_REFSET, columns, inputs).filter("active")
    _add_types(names, writer)
    names = _of_languages(names, settings.languages)
    _add_names(_ranked(names, preferences, settings.refsets, writer), writer)


def _find(release: Release, what: str, pattern: str) -> list[InputFile]:
    if sources := release.find_all(pattern):
        return sources
    raise FormatError(
        release.path,
        None,
        f"no sct2_{what}_Snapshot*.txt in here",
        hint="give the release zip or its Snapshot folder; Full and Delta do not tell what holds now",
    )


def _refuse_two_releases(release: Release, sources: list[InputFile]) -> None:
    """Refuse files that differ in nothing but their date."""
    undated: dict[str, str] = {}
    for source in sources:
        known = undated.setdefault(re.sub(r"_\d{8}(?=\.txt$)", "", source.name), source.name)
        if known != source.name:
            raise FormatError(
                release.path, None, f"both {known} and {source.name} are in here", hint="give one release"
            )


def _latest(
    sources: list[InputFile], layout: tuple[str, ...], columns: list[str], inputs: InputReader
) -> pl.DataFrame:
    """The row that holds for each component, active or not."""
    several = len(sources) > 1
    # Identifiers of refset rows are long and many: they are taken only where they decide something.
    taken = list(dict.fromkeys(["active", *columns, *(["id", "effectiveTime"] if several else [])]))
    frames = [pl.DataFrame(schema=dict.fromkeys(taken, pl.String))]
    for source in sources:
        shape = Layout("\t", layout, header=True, hint=f"is this {source.name}?")
        frames.extend(inputs.frames(source, shape, taken))
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
    wanted = {language.lower() for language in languages}
    if "all" in wanted:
        return names
    there = set(names["languageCode"].unique())
    if unmet := sorted(wanted - there):
        raise ConfigError(
            f"the release has no name in {', '.join(unmet)}; it has {', '.join(sorted(there)) or 'none'}"
        )
    return names.filter(pl.col("languageCode").is_in(wanted))


def _ranked(
    names: pl.DataFrame, preferences: pl.DataFrame, refsets: tuple[str, ...], writer: VocabularyWriter
) -> pl.DataFrame:
    """Add the rank of each name; with refsets chosen, drop the names that none of them accepts."""
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
    # Refsets prefer a fully specified name too; here it steps in where they prefer no synonym.
    synonym = pl.col("typeId") == SYNONYM
    rank = pl.when(~synonym).then(1).when(pl.col("rank") > 0).then(pl.col("rank") + 1).otherwise(0)
    return ranked.with_columns(rank=rank.cast(pl.Int32))


def _weights(preferences: pl.DataFrame, chosen: tuple[str, ...]) -> pl.DataFrame:
    """How much the word of a refset counts: of chosen ones, each more than all after it; else alike."""
    there = preferences["refsetId"].unique().sort().to_list()
    if unmet := sorted(set(chosen) - set(there)):
        found = ", ".join(there) or "none"
        raise ConfigError(f"the release has no language refset {', '.join(unmet)}; it has {found}")
    weights = {refset: 1 << place for place, refset in enumerate(reversed(chosen))} or dict.fromkeys(there, 1)
    columns = {"refsetId": list(weights), "weight": list(weights.values())}
    return pl.DataFrame(columns, schema={"refsetId": pl.String, "weight": pl.Int64})


def _add_types(names: pl.DataFrame, writer: VocabularyWriter) -> None:
    """Add semantic tags, also those of fully specified names that are not kept themselves."""
    specified = names.filter(pl.col("typeId") == FULLY_SPECIFIED)
    tagged = specified.select("conceptId", "languageCode", type=pl.col("term").str.extract(_TAGGED, 2))
    # Translations translate the tag; a type must not have a spelling for each language.
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
