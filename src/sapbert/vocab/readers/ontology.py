"""Shared by the three ontology formats: how statements become a vocabulary.

Each format is parsed into statements (concept, tag, value), which are interpreted here, so an ontology gives
the same vocabulary in any format. A concept may be described in several places of a file, so whether it is
obsolete is known only at the end; names are kept until then.

IRIs become CURIEs by their ending, `…/HP_0000118` → `hp:0000118`. The local part must contain a digit;
otherwise every page with an underscore in its address would be a concept.
"""

from __future__ import annotations

from collections import Counter

import polars as pl

from sapbert.errors import FormatError
from sapbert.vocab.readers.settings import OboSettings
from sapbert.vocab.settings import SCOPES
from sapbert.vocab.text_columns import to_curies
from sapbert.vocab.writer import VocabularyWriter

RANKS = {"name": 2, "second name": 1}
"""Tags of names that can be preferred: `rdfs:label` has precedence over `skos:prefLabel`."""
STATEMENTS = {"concept": pl.UInt32, "tag": pl.String, "value": pl.String, "language": pl.String}
"""Columns of statements: `concept` is a row of the accompanying ids, `tag` a scope, a key of `RANKS`, `xref`,
`alias`, `namespace`, `obsolete`, `successor`, `definition`, `is_a` or `part_of`; a null language is
English."""
_OBO = "http://www.geneontology.org/formats/oboInOwl#"
_SKOS = "http://www.w3.org/2004/02/skos/core#"
ANNOTATIONS = {
    "http://www.w3.org/2000/01/rdf-schema#label": "name",
    f"{_SKOS}prefLabel": "second name",
    f"{_SKOS}altLabel": "exact",
    "http://www.ebi.ac.uk/efo/alternative_term": "exact",
    f"{_OBO}hasExactSynonym": "exact",
    f"{_OBO}hasRelatedSynonym": "related",
    f"{_OBO}hasNarrowSynonym": "narrow",
    f"{_OBO}hasBroadSynonym": "broad",
    f"{_OBO}hasDbXref": "xref",
    f"{_OBO}hasAlternativeId": "alias",
    f"{_OBO}hasOBONamespace": "namespace",
    "http://purl.obolibrary.org/obo/IAO_0100001": "successor",
    "http://purl.obolibrary.org/obo/IAO_0000115": "definition",
    "http://www.ebi.ac.uk/efo/definition": "definition",
    f"{_SKOS}definition": "definition",
}
"""IRI of an annotation property → its tag."""
DEFAULT_NAMESPACE = f"{_OBO}default-namespace"
_PURL = "http://purl.obolibrary.org/obo/"
PART_OF = f"{_PURL}BFO_0000050"
_IRI = r"^.*[/#]([A-Za-z][A-Za-z0-9.\-]*(?:_[A-Za-z]+)*)_([^/#_\s]*[0-9][^/#_\s]*)$"


class Ontology:
    """Collects the statements of one file and passes its concepts to the writer."""

    def __init__(self, name: str, writer: VocabularyWriter, settings: OboSettings) -> None:
        self.name = name
        self.default_namespace: str | None = None
        """The namespace of the ontology itself, which is therefore no type of its concepts."""
        self._writer = writer
        self._scopes = settings.scopes
        self._counts: Counter[str] = Counter()
        self._no_curie = ""
        self._seen = [pl.Series(dtype=pl.String)]
        self._obsolete = [pl.Series(dtype=pl.String)]
        self._names: list[pl.DataFrame] = []
        self._namespaces: list[pl.DataFrame] = []

    def add(self, ids: pl.Series, statements: pl.DataFrame) -> None:
        """Add concepts by their ids in the file, with `STATEMENTS` about them."""
        curies = concept_curies(ids)
        if curies.null_count():
            self._counts["terms without a CURIE dropped"] += curies.null_count()
            self._no_curie = self._no_curie or ids.filter(curies.is_null())[0]
        self._seen.append(curies.drop_nulls())
        rows = statements.with_columns(concept_id=curies.gather(statements["concept"]))
        rows = rows.drop_nulls(["concept_id", "value"])
        self._obsolete.append(rows.filter(pl.col("tag") == "obsolete")["concept_id"])
        self._names.append(_names(rows))
        self._add_xrefs(rows.filter(pl.col("tag") == "xref"))
        aliases = rows.filter(pl.col("tag") == "alias")
        self._writer.add_facts("aliases", aliases.with_columns(alias=concept_curies(aliases["value"])))
        # A concept must still be found by an id that it had before.
        replaced = rows.filter(pl.col("tag") == "successor")
        successors = replaced.select(concept_id=concept_curies(replaced["value"]), alias="concept_id")
        self._writer.add_facts("aliases", successors)
        self._add_parents(rows.filter(pl.col("tag").is_in(["is_a", "part_of"])))
        definitions = rows.filter(pl.col("tag") == "definition").rename({"value": "text"})
        self._writer.add_definitions(definitions.with_columns(language=_language(), source=_source()))
        namespaces = rows.filter(pl.col("tag") == "namespace")
        self._namespaces.append(namespaces.select("concept_id", type="value"))

    def finish(self) -> None:
        """Write everything that had to wait for the end of the file, and the counts."""
        seen = pl.concat(self._seen).unique().to_frame("concept_id")
        if seen.is_empty():
            self._refuse()
        obsolete = pl.concat(self._obsolete).unique().to_frame("concept_id")
        nameless = seen.join(obsolete, on="concept_id", how="anti")
        selected = (pl.col("rank") > 0) | pl.col("scope").is_in(self._scopes)
        while self._names:
            live = self._names.pop(0).join(obsolete, on="concept_id", how="anti", maintain_order="left")
            names = live.filter(selected)
            self._counts["synonyms of other scopes dropped"] += live.height - names.height
            nameless = nameless.join(names, on="concept_id", how="anti")
            self._writer.add(names)
        for namespaces in self._namespaces:
            types = namespaces.filter(pl.col("type").ne_missing(self.default_namespace))
            self._writer.add_facts("types", types)
        self._counts["terms read"] = seen.height
        self._counts["obsolete terms dropped"] = obsolete.height
        self._counts["terms without a name"] = nameless.height
        for what, number in sorted(self._counts.items()):
            if number:
                self._writer.count(what, number)

    def _add_xrefs(self, rows: pl.DataFrame) -> None:
        # The address of a page about a concept is not a CURIE, but some tools write every CURIE as a PURL.
        is_page = pl.col("value").str.contains("://", literal=True) & ~pl.col("value").str.starts_with(_PURL)
        values = rows.filter(~is_page)
        xrefs = values.with_columns(xref=concept_curies(values["value"])).drop_nulls("xref")
        self._counts["xrefs without a CURIE dropped"] += rows.height - xrefs.height
        self._writer.add_facts("xrefs", xrefs)

    def _add_parents(self, rows: pl.DataFrame) -> None:
        parents = rows.with_columns(parent_id=concept_curies(rows["value"]), relation="tag")
        # The common superclass of everything, owl:Thing, has no CURIE.
        self._writer.add_facts("parents", parents.drop_nulls("parent_id"))

    def _refuse(self) -> None:
        if self._no_curie:
            raise FormatError(
                self.name,
                None,
                f"no id of a term can be converted to a CURIE, such as {self._no_curie[:200]!r}",
                hint="ids must look like HP:0000118, or end in HP_0000118 if they are IRIs",
            )
        raise FormatError(self.name, None, "contains no term", hint="is this the whole ontology?")


def _names(rows: pl.DataFrame) -> pl.DataFrame:
    """Return the names in every scope, with the columns of the writer."""
    tag = pl.col("tag")
    is_name = tag.is_in([*RANKS, *SCOPES]) & pl.col("value").str.contains(r"\S")
    return rows.filter(is_name).select(
        "concept_id",
        name="value",
        rank=tag.replace_strict(RANKS, default=0, return_dtype=pl.Int32),
        language=_language(),
        source=_source(),
        scope=pl.when(tag.is_in(SCOPES)).then(tag).otherwise(pl.lit("exact")),
    )


def _language() -> pl.Expr:
    return pl.col("language").str.extract("^([A-Za-z]{2,})").str.to_lowercase().fill_null("en")


def _source() -> pl.Expr:
    return pl.col("concept_id").str.extract("^([^:]*)")


def concept_curies(ids: pl.Series) -> pl.Series:
    """Convert ids (CURIEs in any spelling, or IRIs) to CURIEs; null if an id is neither."""
    text = pl.col("id")
    compact = pl.when(text.str.contains(_IRI)).then(text.str.replace(_IRI, "${1}:${2}"))
    is_iri = text.str.contains("://", literal=True) | text.str.starts_with("#")
    frame = ids.to_frame("id").select(pl.when(is_iri).then(compact).otherwise(text))
    return to_curies(frame.to_series())
