"""Read MeSH as published by NLM: descriptors (`desc2026.xml`) and supplementary records (`supp2026.xml`).

MeSH has three levels: a record contains concepts, and a concept contains terms. The terms of one concept are
synonyms; those of the other concepts of a record are narrower, broader or related, which becomes their scope.
PubMed is indexed by records, so a record is a concept here unless `level` says otherwise.

A tree number says what is above a record: `C10.228` is below `C10`. Supplementary records are in no tree.
Their class is mapped to the letter of the matching tree, so that a filter for diseases (`C`) includes the
rare ones, and the headings they are mapped to are their parents. Scope notes are definitions.

The files have up to 700 MB and are streamed; each record is freed after it was read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import polars as pl

from sapbert.errors import FormatError
from sapbert.vocab.input_files import InputFile, InputReader, RecordStream, Release
from sapbert.vocab.readers.settings import MeshSettings
from sapbert.vocab.schema import ALIASES, DEFINITIONS, TYPES, XREFS
from sapbert.vocab.writer import VocabularyWriter

TREES = {
    "A": "Anatomy",
    "B": "Organisms",
    "C": "Diseases",
    "D": "Chemicals and Drugs",
    "E": "Analytical, Diagnostic and Therapeutic Techniques, and Equipment",
    "F": "Psychiatry and Psychology",
    "G": "Phenomena and Processes",
    "H": "Disciplines and Occupations",
    "I": "Anthropology, Education, Sociology, and Social Phenomena",
    "J": "Technology, Industry, and Agriculture",
    "K": "Humanities",
    "L": "Information Science",
    "M": "Named Groups",
    "N": "Health Care",
    "V": "Publication Characteristics",
    "Z": "Geographicals",
}
"""Letter of a tree → its subject."""
CLASS_TREES = {"1": "D", "2": "E", "3": "C", "4": "B", "5": "M", "6": "A"}
"""Class of a supplementary record (chemical, protocol, disease, organism, population, anatomy) → tree."""
LANGUAGES = {
    "cze": "cs", "dut": "nl", "eng": "en", "fin": "fi", "fre": "fr", "ger": "de", "ita": "it", "jpn": "ja",
    "lav": "lv", "nor": "no", "pol": "pl", "por": "pt", "rus": "ru", "scr": "hr", "slv": "sl", "spa": "es",
    "swe": "sv",
}  # fmt: skip
"""Language code of a translated edition → ISO 639-1."""

_RECORDS = {
    "DescriptorRecordSet": ("DescriptorRecord", "DescriptorUI"),
    "SupplementalRecordSet": ("SupplementalRecord", "SupplementalRecordUI"),
}
_SCOPES = {"NRW": "narrow", "BRD": "broad", "REL": "related"}
_OPPOSITE = {"narrow": "broad", "broad": "narrow", "related": "related"}
_ROWS_PER_FRAME = 100_000
_NO_ELEMENTS = 3
"""Expat's error code for a document that ends too early."""


def read_mesh(path: Path, writer: VocabularyWriter, inputs: InputReader, settings: MeshSettings) -> None:
    """Read `desc*.xml` or `supp*.xml`, plain, gzip or zip, or a folder with either or both."""
    writer.type_labels.update(TREES)
    pending = _PendingRows(writer, settings)
    for source in _find_sources(Release(path)):
        for record in _records(source, inputs):
            writer.count("records read", 1)
            if settings.level == "descriptor":
                _add_record(record, pending)
            else:
                _add_concepts(record, pending, inputs)
            pending.flush(at_least=_ROWS_PER_FRAME)
    pending.flush()
    pending.add_parents()


def _find_sources(release: Release) -> list[InputFile]:
    # The user may have renamed a single file; its root element says what it is.
    if not release.path.is_dir() and len(release.members) == 1:
        only = release.members[0]
        return [InputFile(only.plain_name, (only,))]
    by_kind: dict[str, InputFile] = {}
    # NLM packs desc2026.xml as desc2026.gz, without the `.xml`.
    for source in release.find_all(r"[a-z]*(desc|supp)\d*(\.xml)?"):
        known = by_kind.setdefault(re.sub(r"\d*(\.xml)?$", "", source.name.lower()), source)
        if _stem(known) != _stem(source):
            raise FormatError(
                release.path, None, f"contains both {known.name} and {source.name}", hint="give one year"
            )
    if not by_kind:
        raise FormatError(
            release.path,
            None,
            "contains no desc*.xml or supp*.xml",
            hint="give the file itself or its folder",
        )
    return list(by_kind.values())


def _stem(source: InputFile) -> str:
    return source.name.lower().removesuffix(".xml")


@dataclass(frozen=True, slots=True)
class _Record:
    """One record of a file; its element is cleared when the next record is read."""

    ui: str
    element: ET.Element
    language: str
    where: str
    """The file name, for messages."""

    def concepts(self) -> list[ET.Element]:
        return self.element.findall("ConceptList/Concept")

    def types(self) -> set[str]:
        """Letters of the trees that contain the record."""
        if self.element.tag == "SupplementalRecord":
            # The document type declares chemicals as the default class; the parser does not load it.
            letter = CLASS_TREES.get(self.element.get("SCRClass", "1"))
            return {letter} if letter else set()
        return {number[:1] for number in self.tree_numbers()}

    def tree_numbers(self) -> list[str]:
        """Places of the record in the trees."""
        numbers = self.element.iterfind("TreeNumberList/TreeNumber")
        return [number.text.strip() for number in numbers if number.text and number.text.strip()]

    def headings(self) -> list[str]:
        """Descriptors that a supplementary record is mapped to; `*` marks the main ones."""
        found = self.element.iterfind("HeadingMappedToList/HeadingMappedTo/DescriptorReferredTo/DescriptorUI")
        return [f"mesh:{ui.text.strip().lstrip('*')}" for ui in found if ui.text and ui.text.strip(" *")]


def _records(source: InputFile, inputs: InputReader) -> Iterator[_Record]:
    root: ET.Element | None = None
    with inputs.stream(source) as stream:
        records = RecordStream(stream, source.name)
        try:
            for event, element in ET.iterparse(records, events=("start", "end")):  # noqa: S314  # expat limits entities
                if root is None:
                    root = element
                    tag, id_tag = _kind(root, source)
                    language = LANGUAGES.get(root.get("LanguageCode", "eng"), "und")
                elif event == "end" and element.tag == tag:
                    if ui := (element.findtext(id_tag) or "").strip():
                        yield _Record(ui, element, language, source.name)
                    else:
                        inputs.reject_row(FormatError(source.name, None, f"a {tag} has no {id_tag}"))
                    root.clear()
                    records.start_record()
        except ET.ParseError as error:
            raise _explained(error, source, has_root=root is not None) from error


def _kind(root: ET.Element, source: InputFile) -> tuple[str, str]:
    if root.tag in _RECORDS:
        return _RECORDS[root.tag]
    raise FormatError(
        source.name,
        None,
        f"expected {' or '.join(_RECORDS)}, found {root.tag[:80]}",
        hint="is this desc*.xml?",
    )


def _explained(error: ET.ParseError, source: InputFile, *, has_root: bool) -> FormatError:
    if error.code == _NO_ELEMENTS and not has_root:
        return FormatError(source.name, None, "the file is empty", hint="download it again")
    line, column = error.position
    if error.code == _NO_ELEMENTS:
        return FormatError(source.name, line, "the file ends within a record", hint="download it again")
    problem = f"not well-formed XML in column {column + 1}: {str(error).partition(':')[0]}"
    return FormatError(source.name, line, problem, hint="is this desc*.xml?")


class _PendingRows:
    """Collects rows for the writer, which takes whole frames."""

    def __init__(self, writer: VocabularyWriter, settings: MeshSettings) -> None:
        self._writer = writer
        self._settings = settings
        self._names: list[tuple[str, str, int, str, str]] = []
        self._facts: dict[str, list[tuple[str, str]]] = {"types": [], "xrefs": [], "aliases": []}
        self._definitions: list[tuple[str, str, str, str]] = []
        self._tree_numbers: list[tuple[str, str]] = []
        self._parents: list[tuple[str, str]] = []

    def add_terms(self, id: str, concept: ET.Element, flag: str, language: str, scope: str) -> None:
        """Add the terms of a MeSH concept as names of `id`; the one with `flag` is preferred."""
        for term in concept.iterfind("TermList/Term"):
            if term.get("IsPermutedTermYN") == "Y" and not self._settings.keep_permuted:
                self._writer.count("permuted terms dropped", 1)
                continue
            rank = int(term.get(flag) == "Y")
            self._names.append((id, term.findtext("String") or "", rank, language, scope))

    def add_facts(self, table: str, id: str, values: Iterable[str]) -> None:
        """Add rows to `types`, `xrefs` or `aliases`."""
        self._facts[table].extend((id, value) for value in values)

    def add_definition(self, id: str, concept: ET.Element, language: str) -> None:
        """Add the scope note of a MeSH concept, if it has one."""
        if note := concept.findtext("ScopeNote"):
            self._definitions.append((id, note, language, "mesh"))

    def add_places(self, id: str, record: _Record) -> None:
        """Add what is known about the parents of `id`, which stands for `record`."""
        self._tree_numbers.extend((id, number) for number in record.tree_numbers())
        self._parents.extend((id, heading) for heading in record.headings())

    def add_parent(self, id: str, parent: str) -> None:
        """Add one parent."""
        self._parents.append((id, parent))

    def add_parents(self) -> None:
        """Pass the parents to the writer; tree numbers can be resolved only after all records were read."""
        places = _frame(self._tree_numbers, {"concept_id": pl.String, "number": pl.String})
        below = places.with_columns(number=pl.col("number").str.extract(r"^(.*)\.[^.]*$")).drop_nulls()
        found = below.join(places.select("number", parent_id="concept_id"), on="number", how="left")
        self._writer.count("tree numbers without a parent", found["parent_id"].null_count())
        stated = _frame(self._parents, {"concept_id": pl.String, "parent_id": pl.String})
        parents = pl.concat([found.select(stated.columns), stated]).with_columns(relation=pl.lit("broader"))
        self._writer.add_facts("parents", parents)

    def flush(self, *, at_least: int = 1) -> None:
        """Pass the rows to the writer if there are at least `at_least` names."""
        if len(self._names) < at_least:
            return
        names = _frame(self._names, dict.fromkeys(["concept_id", "name", "rank", "language", "scope"]))
        self._writer.add(names.with_columns(source=pl.lit("mesh")))
        self._names = []
        for table, schema in (("types", TYPES), ("xrefs", XREFS), ("aliases", ALIASES)):
            self._writer.add_facts(table, _frame(self._facts[table], schema))
            self._facts[table] = []
        self._writer.add_definitions(_frame(self._definitions, DEFINITIONS))
        self._definitions = []


def _frame(rows: list[tuple[Any, ...]], schema: Mapping[str, Any]) -> pl.DataFrame:
    """Make a frame from rows, by columns: several times faster in polars than by rows."""
    columns = zip(*rows, strict=True) if rows else ([] for _ in schema)
    return pl.DataFrame(dict(zip(schema, columns, strict=True)), schema=dict(schema))


def _add_record(record: _Record, pending: _PendingRows) -> None:
    """Add a record as one concept.

    The scope of a term is the relation of its MeSH concept to the preferred one.
    """
    curie = f"mesh:{record.ui}"
    concepts = record.concepts()
    scopes = _scopes(concepts)
    for concept in concepts:
        scope = "exact" if _is_preferred(concept) else scopes.get(_ui(concept), "related")
        pending.add_terms(curie, concept, "RecordPreferredTermYN", record.language, scope)
        if _is_preferred(concept):
            pending.add_definition(curie, concept, record.language)
    pending.add_facts("types", curie, record.types())
    pending.add_places(curie, record)


def _add_concepts(record: _Record, pending: _PendingRows, inputs: InputReader) -> None:
    """Add each MeSH concept of a record as a concept."""
    owner = [f"mesh:{record.ui}"]
    scopes = _scopes(record.concepts())
    for concept in record.concepts():
        if not (ui := _ui(concept)):
            inputs.reject_row(FormatError(record.where, None, f"a Concept of {record.ui} has no ConceptUI"))
            continue
        curie = f"mesh:{ui}"
        pending.add_terms(curie, concept, "ConceptPreferredTermYN", record.language, "exact")
        pending.add_facts("types", curie, record.types())
        pending.add_facts("xrefs", curie, owner)
        pending.add_definition(curie, concept, record.language)
        if _is_preferred(concept):
            pending.add_facts("aliases", curie, owner)
            pending.add_places(curie, record)
        elif scopes.get(ui) == "narrow":
            pending.add_parent(curie, *owner)


def _ui(concept: ET.Element) -> str:
    return (concept.findtext("ConceptUI") or "").strip()


def _is_preferred(concept: ET.Element) -> bool:
    return concept.get("PreferredConceptYN") == "Y"


def _scopes(concepts: list[ET.Element]) -> dict[str, str]:
    """Return the relation of each concept to the preferred one, if the record states it."""
    preferred = {_ui(concept) for concept in concepts if _is_preferred(concept)}
    scopes: dict[str, str] = {}
    for concept in concepts:
        for relation in concept.iterfind("ConceptRelationList/ConceptRelation"):
            first, second = (relation.findtext(tag, "").strip() for tag in ("Concept1UI", "Concept2UI"))
            # The relation NRW means that the second concept is narrower than the first.
            scope = _SCOPES.get(relation.get("RelationName", ""), "related")
            if first in preferred:
                scopes[second] = scope
            elif second in preferred:
                scopes[first] = _OPPOSITE[scope]
    return scopes
