"""Read OWL as RDF/XML, the form in which ontologies are published, in constant memory.

An `owl:Class` is a child of the root with its annotations as children, so the children of the root are read
one at a time and freed; all other elements (axioms about axioms, properties, individuals) are skipped.
Entities declared in the file itself are common. expat resolves them, refuses those that expand
exponentially, and never fetches an external one.
"""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Iterator
from typing import BinaryIO
from xml.parsers import expat

import polars as pl

from sapbert.errors import FormatError
from sapbert.vocab.input_files import InputFile, InputReader, RecordStream
from sapbert.vocab.readers.ontology import ANNOTATIONS, DEFAULT_NAMESPACE, PART_OF, STATEMENTS, Ontology

ROWS_PER_BATCH = 200_000
_RDF = "{http://www.w3.org/1999/02/22-rdf-syntax-ns#}"
_OWL = "http://www.w3.org/2002/07/owl#"
_LANGUAGE = "{http://www.w3.org/XML/1998/namespace}lang"


def _element_name(iri: str) -> str:
    """Return the name that ElementTree gives an element whose property is `iri`."""
    end = max(iri.rfind("#"), iri.rfind("/")) + 1
    return f"{{{iri[:end]}}}{iri[end:]}"


_TAGS = {_element_name(iri): tag for iri, tag in ANNOTATIONS.items()}
_CLASS = _element_name(f"{_OWL}Class")
_ONTOLOGY = _element_name(f"{_OWL}Ontology")
_SUBCLASS = _element_name("http://www.w3.org/2000/01/rdf-schema#subClassOf")
_RESTRICTION = _element_name(f"{_OWL}Restriction")
_ON_PROPERTY = _element_name(f"{_OWL}onProperty")
_SOME_OF = _element_name(f"{_OWL}someValuesFrom")
_DEPRECATED = _element_name(f"{_OWL}deprecated")
_DEFAULT_NAMESPACE = _element_name(DEFAULT_NAMESPACE)


def read_owl(source: InputFile, inputs: InputReader, ontology: Ontology) -> None:
    """Read the named classes of an ontology."""
    with inputs.stream(source) as stream:
        pending = _PendingClasses()
        try:
            for element in _root_children(stream, source.name):
                if element.tag == _ONTOLOGY:
                    ontology.default_namespace = element.findtext(_DEFAULT_NAMESPACE)
                elif _is_class(element):
                    pending.add(element)
                    if len(pending.rows) >= ROWS_PER_BATCH:
                        pending.add_to(ontology)
                        pending = _PendingClasses()
        except ET.ParseError as error:
            problem = f"invalid XML: {expat.ErrorString(error.code)}"
            raise FormatError(
                source.name, error.position[0], problem, hint="is the file complete?"
            ) from error
        pending.add_to(ontology)


class _PendingClasses:
    """Collects classes and statements about them until there are enough for a frame."""

    def __init__(self) -> None:
        self.ids: list[str] = []
        self.rows: list[tuple[int, str, str | None, str | None]] = []

    def add(self, element: ET.Element) -> None:
        """Add a class, unless it is anonymous (a restriction, a union)."""
        iri = element.get(f"{_RDF}about") or f"#{element.get(f'{_RDF}ID', '')}"
        if iri == "#":
            return
        concept = len(self.ids)
        self.ids.append(iri)
        for child in element:
            if tag := _TAGS.get(child.tag):
                value = child.get(f"{_RDF}resource") or child.text
                self.rows.append((concept, tag, value, child.get(_LANGUAGE)))
            elif child.tag == _SUBCLASS:
                self.rows.append((concept, *_parent(child), None))
            elif child.tag == _DEPRECATED and (child.text or "").strip() in ("true", "1"):
                self.rows.append((concept, "obsolete", "true", None))

    def add_to(self, ontology: Ontology) -> None:
        """Add everything to the ontology."""
        statements = pl.DataFrame(self.rows, schema=STATEMENTS, orient="row")
        ontology.add(pl.Series(self.ids, dtype=pl.String), statements)


def _parent(subclass: ET.Element) -> tuple[str, str | None]:
    """Return the relation and the IRI of a parent; None for any other expression."""
    if iri := subclass.get(f"{_RDF}resource"):
        return "is_a", iri
    restriction = subclass.find(_RESTRICTION)
    if restriction is None:
        return "is_a", None
    prop, filler = restriction.find(_ON_PROPERTY), restriction.find(_SOME_OF)
    is_part = prop is not None and prop.get(f"{_RDF}resource") == PART_OF
    return "part_of", filler.get(f"{_RDF}resource") if is_part and filler is not None else None


def _root_children(stream: BinaryIO, name: str) -> Iterator[ET.Element]:
    """Yield the children of rdf:RDF; each is cleared when the next is read."""
    depth, root = 0, ET.Element("")
    records = RecordStream(stream, name)
    for event, element in ET.iterparse(records, events=("start", "end")):  # noqa: S314  # see the module
        if event == "start":
            if depth == 0:
                root = _checked_root(element, name)
            depth += 1
        else:
            depth -= 1
            if depth == 1:
                yield element
                root.clear()
                records.start_record()


def _checked_root(root: ET.Element, name: str) -> ET.Element:
    if root.tag != f"{_RDF}RDF":
        found = f"expected OWL as RDF/XML, found the XML element {root.tag.rpartition('}')[2]!r}"
        raise FormatError(name, None, found, hint="`robot convert --format owl` writes RDF/XML")
    return root


def _is_class(element: ET.Element) -> bool:
    """Return whether an element is an `owl:Class`, in the short or the long form of RDF/XML."""
    if element.tag == _CLASS:
        return True
    return element.tag == f"{_RDF}Description" and any(
        child.get(f"{_RDF}resource") == f"{_OWL}Class" for child in element.iterfind(f"{_RDF}type")
    )
