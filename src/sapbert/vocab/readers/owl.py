"""Read OWL as RDF/XML, the form in which ontologies are published, in flat memory.

An `owl:Class` is a child of the root with its annotations as children, so the root's children are taken
one at a time and forgotten; all other elements (axioms on axioms, properties, individuals) go by. Entities
declared in the file itself are common and resolved by expat, which refuses those that blow up and never
fetches one from outside.
"""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Iterator
from typing import BinaryIO
from xml.parsers import expat

import polars as pl

from sapbert.errors import FormatError
from sapbert.vocab.input_files import InputFile, InputReader
from sapbert.vocab.readers.ontology import ANNOTATIONS, DEFAULT_NAMESPACE, STATEMENTS, Ontology

ROWS_PER_BATCH = 200_000
_RDF = "{http://www.w3.org/1999/02/22-rdf-syntax-ns#}"
_OWL = "http://www.w3.org/2002/07/owl#"
_LANGUAGE = "{http://www.w3.org/XML/1998/namespace}lang"


def _element_name(iri: str) -> str:
    """The name ElementTree gives an element whose property is `iri`."""
    end = max(iri.rfind("#"), iri.rfind("/")) + 1
    return f"{{{iri[:end]}}}{iri[end:]}"


_TAGS = {_element_name(iri): tag for iri, tag in ANNOTATIONS.items()}
_CLASS = _element_name(f"{_OWL}Class")
_ONTOLOGY = _element_name(f"{_OWL}Ontology")
_DEPRECATED = _element_name(f"{_OWL}deprecated")
_DEFAULT_NAMESPACE = _element_name(DEFAULT_NAMESPACE)


def read_owl(source: InputFile, inputs: InputReader, ontology: Ontology) -> None:
    """Read the named classes of an ontology."""
    with inputs.stream(source) as stream:
        batch = _Batch()
        try:
            for element in _root_children(stream, source.name):
                if element.tag == _ONTOLOGY:
                    ontology.default_namespace = element.findtext(_DEFAULT_NAMESPACE)
                elif _is_class(element):
                    batch.add(element)
                    if len(batch.rows) >= ROWS_PER_BATCH:
                        batch.hand_to(ontology)
                        batch = _Batch()
        except ET.ParseError as error:
            problem = f"broken XML: {expat.ErrorString(error.code)}"
            raise FormatError(source.name, error.position[0], problem, hint="is the file whole?") from error
        batch.hand_to(ontology)


class _Batch:
    """Classes and the statements on them, until there are enough for a frame."""

    def __init__(self) -> None:
        self.ids: list[str] = []
        self.rows: list[tuple[int, str, str | None, str | None]] = []

    def add(self, element: ET.Element) -> None:
        """Add a class, unless it has no name of its own (a restriction, a union)."""
        iri = element.get(f"{_RDF}about") or f"#{element.get(f'{_RDF}ID', '')}"
        if iri == "#":
            return
        concept = len(self.ids)
        self.ids.append(iri)
        for child in element:
            if tag := _TAGS.get(child.tag):
                value = child.get(f"{_RDF}resource") or child.text
                self.rows.append((concept, tag, value, child.get(_LANGUAGE)))
            elif child.tag == _DEPRECATED and (child.text or "").strip() in ("true", "1"):
                self.rows.append((concept, "obsolete", "true", None))

    def hand_to(self, ontology: Ontology) -> None:
        """Give all of it to the ontology."""
        statements = pl.DataFrame(self.rows, schema=STATEMENTS, orient="row")
        ontology.take(pl.Series(self.ids, dtype=pl.String), statements)


def _root_children(stream: BinaryIO, name: str) -> Iterator[ET.Element]:
    """Yield the children of rdf:RDF, each whole, and forget it when the next is asked for."""
    depth, root = 0, ET.Element("")
    for event, element in ET.iterparse(stream, events=("start", "end")):  # noqa: S314  # see the module
        if event == "start":
            if depth == 0:
                root = _checked_root(element, name)
            depth += 1
        else:
            depth -= 1
            if depth == 1:
                yield element
                root.clear()


def _checked_root(root: ET.Element, name: str) -> ET.Element:
    if root.tag != f"{_RDF}RDF":
        found = f"expected OWL as RDF/XML, found the XML element {root.tag.rpartition('}')[2]!r}"
        raise FormatError(name, None, found, hint="`robot convert --format owl` writes RDF/XML")
    return root


def _is_class(element: ET.Element) -> bool:
    """True for `owl:Class`, in the short form of RDF/XML or the long one."""
    if element.tag == _CLASS:
        return True
    return element.tag == f"{_RDF}Description" and any(
        child.get(f"{_RDF}resource") == f"{_OWL}Class" for child in element.iterfind(f"{_RDF}type")
    )
