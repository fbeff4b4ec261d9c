"""Read OMOP vocabularies as downloaded from Athena: `CONCEPT.csv`, `CONCEPT_SYNONYM.csv` and parents.

The files are separated by tabs in spite of their names, and quotes are data. A concept keeps its OMOP
identifier (`omop:4329847`); its code in the original vocabulary (`snomedct:22298006`) is an alias, so both
are found. Names in CONCEPT.csv are English by OMOP's rules; a synonym states its language. Parents are the
`Is a` rows of CONCEPT_RELATIONSHIP.csv; without that file, the direct ancestors in CONCEPT_ANCESTOR.csv.
"""

from __future__ import annotations

import re
from pathlib import Path

import polars as pl

from sapbert.curies import canonical_prefix
from sapbert.errors import ConfigError, FormatError
from sapbert.vocab.delimited import Layout
from sapbert.vocab.input_files import InputFile, InputReader, Release
from sapbert.vocab.readers.settings import OmopSettings
from sapbert.vocab.text_columns import to_curies
from sapbert.vocab.writer import VocabularyWriter

LANGUAGES = {
    "4052786": "bn", "4059788": "ur", "4175771": "ko", "4175777": "sv", "4175908": "ne", "4175935": "rw",
    "4180047": "he", "4180183": "da", "4180186": "en", "4180190": "fr", "4181374": "ar", "4181524": "ja",
    "4181526": "vi", "4181536": "pt", "4181539": "ru", "4181698": "sw", "4181730": "fi", "4182349": "om",
    "4182354": "am", "4182356": "ti", "4182503": "nl", "4182504": "de", "4182507": "it", "4182511": "es",
    "4182948": "zh", "4183663": "id", "4183770": "km", "44802876": "ht",
}  # fmt: skip
"""OMOP concept of a language, as its vocabularies use it → ISO 639-1."""
UNDETERMINED = "und"
"""ISO 639 code for an unknown language."""

_CONCEPT = (
    "concept_id", "concept_name", "domain_id", "vocabulary_id", "concept_class_id", "standard_concept",
    "concept_code", "valid_start_date", "valid_end_date", "invalid_reason",
)  # fmt: skip
_SYNONYM = ("concept_id", "concept_synonym_name", "language_concept_id")
_RELATIONSHIP = (
    "concept_id_1", "concept_id_2", "relationship_id", "valid_start_date", "valid_end_date", "invalid_reason",
)  # fmt: skip
_ANCESTOR = (
    "ancestor_concept_id", "descendant_concept_id", "min_levels_of_separation", "max_levels_of_separation",
)  # fmt: skip
_IS_A = ("Is a", "RxNorm is a")
_NO_MATCHING_CONCEPT = "0"


def read_omop(path: Path, writer: VocabularyWriter, inputs: InputReader, settings: OmopSettings) -> None:
    """Read an Athena download: its folder, its zip, or only CONCEPT.csv (which has no synonyms)."""
    release = Release(path)
    concepts = release.find(r"CONCEPT\.csv")
    if concepts is None:
        raise FormatError(
            path, None, "contains no CONCEPT.csv", hint="give the folder or zip downloaded from Athena"
        )
    kept = _read_concepts(concepts, writer, inputs, settings)
    if synonyms := release.find(r"CONCEPT_SYNONYM\.csv"):
        _read_synonyms(synonyms, kept, writer, inputs)
    if relationships := release.find(r"CONCEPT_RELATIONSHIP\.csv"):
        _read_relationships(relationships, kept, writer, inputs)
    elif ancestors := release.find(r"CONCEPT_ANCESTOR\.csv"):
        _read_ancestors(ancestors, kept, writer, inputs)


def _layout(source: InputFile, columns: tuple[str, ...]) -> Layout:
    return Layout(
        "\t", columns, header=True, hint=f"is this Athena's {source.name}? Its columns are separated by tabs"
    )


def _read_concepts(
    source: InputFile, writer: VocabularyWriter, inputs: InputReader, settings: OmopSettings
) -> pl.DataFrame:
    """Add the selected concepts; return the identifier and vocabulary of each."""
    columns = [c for c in _CONCEPT if c not in ("concept_class_id", "valid_start_date", "valid_end_date")]
    kept = [pl.DataFrame(schema={"concept_id": pl.String, "source": pl.Categorical})]
    seen: dict[str, set[str]] = {"vocabulary_id": set(), "domain_id": set()}
    for frame in inputs.frames(source, _layout(source, _CONCEPT), columns):
        writer.count("concepts read", frame.height)
        for column, values in seen.items():
            values.update(frame[column].unique())
        selected = _select(_with_numeric_ids(frame, source, inputs), writer, settings)
        _add_concepts(selected, writer)
        kept.append(selected.select("concept_id", source=pl.col("vocabulary_id").cast(pl.Categorical)))
    _refuse_unknown(settings.vocabularies, seen["vocabulary_id"], f"{source.name} has no vocabulary")
    _refuse_unknown(settings.domains, seen["domain_id"], f"{source.name} has no domain")
    return pl.concat(kept)


def _with_numeric_ids(frame: pl.DataFrame, source: InputFile, inputs: InputReader) -> pl.DataFrame:
    numbered = pl.col("concept_id").str.contains(r"^[0-9]+$")
    for text, name in frame.filter(~numbered).select("concept_id", "concept_name").iter_rows():
        inputs.reject_row(
            FormatError(source.name, None, f"concept_id {text!r} of {name[:80]!r} is not a number")
        )
    return frame.filter(numbered)


def _select(frame: pl.DataFrame, writer: VocabularyWriter, settings: OmopSettings) -> pl.DataFrame:
    # The table contains a row for "no matching concept"; a linker must not return it as a concept.
    selected = pl.col("concept_id") != _NO_MATCHING_CONCEPT
    if settings.vocabularies:
        selected &= pl.col("vocabulary_id").is_in(settings.vocabularies)
    if settings.domains:
        selected &= pl.col("domain_id").is_in(settings.domains)
    if settings.standard_only:
        selected &= pl.col("standard_concept") == "S"
    frame = frame.filter(selected)
    if settings.keep_invalid:
        return frame
    valid = frame.filter(pl.col("invalid_reason") == "")
    writer.count("invalid concepts dropped", frame.height - valid.height)
    return valid


def _add_concepts(rows: pl.DataFrame, writer: VocabularyWriter) -> None:
    ids = rows.with_columns(id="omop:" + pl.col("concept_id"))
    writer.add(
        ids.select(
            concept_id="id", name="concept_name", rank=pl.lit(1, dtype=pl.Int32), source="vocabulary_id"
        )
    )
    writer.add_facts("types", ids.filter(pl.col("domain_id") != "").select(concept_id="id", type="domain_id"))
    prefixes = {vocabulary: _prefix(vocabulary) for vocabulary in ids["vocabulary_id"].unique()}
    codes = ids.select(
        concept_id="id", alias=pl.col("vocabulary_id").replace(prefixes) + ":" + pl.col("concept_code")
    )
    writer.add_facts("aliases", codes.with_columns(to_curies(codes["alias"])))


def _prefix(vocabulary: str) -> str:
    """Return the CURIE prefix: `SNOMED` is `snomedct`, `RxNorm Extension` is `rxnorm_extension`."""
    return canonical_prefix(re.sub(r"[^a-z0-9.\-]+", "_", vocabulary.lower()).strip("_.-"))


def _read_synonyms(
    source: InputFile, kept: pl.DataFrame, writer: VocabularyWriter, inputs: InputReader
) -> None:
    for frame in inputs.frames(source, _layout(source, _SYNONYM), list(_SYNONYM)):
        writer.count("synonyms read", frame.height)
        # The writer drops a synonym that repeats the name only if both have the same source.
        synonyms = frame.join(kept, on="concept_id", maintain_order="left")
        writer.add(
            synonyms.select(
                concept_id="omop:" + pl.col("concept_id"),
                name="concept_synonym_name",
                language=pl.col("language_concept_id").replace_strict(LANGUAGES, default=UNDETERMINED),
                source=pl.col("source").cast(pl.String),
            )
        )


def _read_relationships(
    source: InputFile, kept: pl.DataFrame, writer: VocabularyWriter, inputs: InputReader
) -> None:
    def parents(frame: pl.DataFrame) -> pl.DataFrame:
        is_a = frame.filter(pl.col("relationship_id").is_in(_IS_A), pl.col("invalid_reason") == "")
        return _parents(is_a, "concept_id_1", "concept_id_2", "is_a", kept)

    columns = ["concept_id_1", "concept_id_2", "relationship_id", "invalid_reason"]
    for frame in inputs.frames(source, _layout(source, _RELATIONSHIP), columns, parents):
        writer.add_facts("parents", frame)


def _read_ancestors(
    source: InputFile, kept: pl.DataFrame, writer: VocabularyWriter, inputs: InputReader
) -> None:
    def parents(frame: pl.DataFrame) -> pl.DataFrame:
        direct = frame.filter(pl.col("min_levels_of_separation") == "1")
        return _parents(direct, "descendant_concept_id", "ancestor_concept_id", "broader", kept)

    for frame in inputs.frames(source, _layout(source, _ANCESTOR), list(_ANCESTOR[:3]), parents):
        writer.add_facts("parents", frame)


def _parents(frame: pl.DataFrame, child: str, parent: str, relation: str, kept: pl.DataFrame) -> pl.DataFrame:
    known = frame.join(kept, left_on=child, right_on="concept_id", how="semi")
    return known.select(
        concept_id="omop:" + pl.col(child), parent_id="omop:" + pl.col(parent), relation=pl.lit(relation)
    )


def _refuse_unknown(requested: tuple[str, ...], seen: set[str], problem: str) -> None:
    if unknown := sorted(set(requested) - seen):
        present = ", ".join(sorted(seen)[:20]) + (", …" if len(seen) > 20 else "")
        raise ConfigError(f"{problem} {', '.join(unknown)}; it has {present}")
