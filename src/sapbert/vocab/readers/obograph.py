"""Read OBO Graphs, the JSON form of an ontology: `{"graphs": [{"nodes": […], "edges": […]}]}`.

polars parses the document with a schema of the required fields, so no Python object is created per node. The
document must fit in memory; the largest ontologies are also published as OBO and OWL, which are streamed.
"""

from __future__ import annotations

import io
import json

import polars as pl

from sapbert.errors import FormatError
from sapbert.vocab.input_files import InputFile, InputReader
from sapbert.vocab.readers.ontology import ANNOTATIONS, DEFAULT_NAMESPACE, PART_OF, Ontology

_MAX_BYTES = 512 << 20
_PAIRS = pl.List(pl.Struct({"pred": pl.String, "val": pl.String}))
_META = pl.Struct(
    {
        "deprecated": pl.Boolean,
        "synonyms": _PAIRS,
        "xrefs": pl.List(pl.Struct({"val": pl.String})),
        "basicPropertyValues": _PAIRS,
        "definition": pl.Struct({"val": pl.String}),
    }
)
_NODE = pl.Struct({"id": pl.String, "lbl": pl.String, "type": pl.String, "meta": _META})
_EDGE = pl.Struct({"sub": pl.String, "pred": pl.String, "obj": pl.String})
_GRAPH = pl.Struct({"nodes": pl.List(_NODE), "edges": pl.List(_EDGE), "meta": _META})
_RELATIONS = {"is_a": "is_a", PART_OF: "part_of"}
_SYNONYMS = {iri.rpartition("#")[2]: tag for iri, tag in ANNOTATIONS.items() if iri.endswith("Synonym")}


def read_obograph(source: InputFile, inputs: InputReader, ontology: Ontology) -> None:
    """Read the CLASS nodes of all graphs of a document."""
    with inputs.stream(source) as stream:
        data = stream.read(_MAX_BYTES + 1)
        if len(data) > _MAX_BYTES:
            problem = f"the document is larger than {_MAX_BYTES >> 20} MB"
            raise FormatError(source.name, None, problem, hint="read the ontology as OBO or OWL")
        graphs = _graphs(data, source.name)
    header = _properties(graphs).filter(pl.col("pred") == DEFAULT_NAMESPACE)["val"]
    ontology.default_namespace = header[0] if len(header) else None
    nodes = graphs.select(pl.col("nodes").explode()).drop_nulls().unnest("nodes").with_row_index("number", 1)
    classes = nodes.filter(pl.col("type") == "CLASS")
    for number in classes.filter(pl.col("id").is_null())["number"]:
        inputs.reject_row(FormatError(source.name, None, f"node {number} has no id"))
    classes = classes.drop_nulls("id").drop("number", "type").with_row_index("concept")
    statements = [_statements(classes, source.name, inputs), _parents(classes, graphs)]
    ontology.add(classes["id"], pl.concat(statements).with_columns(language=pl.lit(None, dtype=pl.String)))


def _graphs(data: bytes, name: str) -> pl.DataFrame:
    try:
        document = pl.read_json(io.BytesIO(data), schema={"graphs": pl.List(_GRAPH)})
    except pl.exceptions.PolarsError as error:
        raise _explain(data, name, error) from error
    graphs = document.select(pl.col("graphs").explode()).drop_nulls()
    if graphs.is_empty():
        raise FormatError(name, None, "this JSON has no `graphs`", hint="is this an OBO Graphs document?")
    return graphs.unnest("graphs")


def _explain(data: bytes, name: str, error: Exception) -> FormatError:
    """Find the position of the error in a document that polars refused; polars does not report it."""
    try:
        json.loads(data.decode("utf-8-sig"))
    except UnicodeDecodeError as bad:
        line = data.count(b"\n", 0, bad.start) + 1
        return FormatError(name, line, f"byte 0x{data[bad.start]:02x} is not UTF-8", hint="download it again")
    except json.JSONDecodeError as bad:
        return FormatError(name, bad.lineno, f"invalid JSON: {bad.msg}", hint="is the file complete?")
    except RecursionError:
        pass
    problem = str(error).partition("\n")[0][:200]
    return FormatError(
        name, None, f"not structured as OBO Graphs: {problem}", hint="is this an OBO Graphs document?"
    )


def _statements(classes: pl.DataFrame, name: str, inputs: InputReader) -> pl.DataFrame:
    meta = pl.col("meta").struct
    labels = classes.select("concept", tag=pl.lit("name"), value="lbl")
    xrefs = classes.select("concept", value=meta.field("xrefs")).explode("value").drop_nulls()
    obsolete = classes.filter(meta.field("deprecated")).select("concept")
    properties = _properties(classes).filter(pl.col("pred").is_in(list(ANNOTATIONS)))
    parts = [
        labels,
        _synonyms(classes, name, inputs),
        xrefs.select("concept", tag=pl.lit("xref"), value=pl.col("value").struct.field("val")),
        properties.select("concept", tag=pl.col("pred").replace_strict(ANNOTATIONS), value="val"),
        obsolete.with_columns(tag=pl.lit("obsolete"), value=pl.lit("true")),
        classes.select(
            "concept", tag=pl.lit("definition"), value=meta.field("definition").struct.field("val")
        ),
    ]
    return pl.concat(parts)


def _parents(classes: pl.DataFrame, graphs: pl.DataFrame) -> pl.DataFrame:
    edges = graphs.select(pl.col("edges").explode()).drop_nulls().unnest("edges")
    related = edges.filter(pl.col("pred").is_in(list(_RELATIONS)))
    owned = related.join(classes.select("concept", sub="id").unique("sub", keep="first"), on="sub")
    return owned.select("concept", tag=pl.col("pred").replace_strict(_RELATIONS), value="obj")


def _synonyms(classes: pl.DataFrame, name: str, inputs: InputReader) -> pl.DataFrame:
    pairs = classes.select("concept", "id", pair=pl.col("meta").struct.field("synonyms")).explode("pair")
    synonyms = (
        pairs.drop_nulls("pair")
        .unnest("pair")
        .with_columns(tag=pl.col("pred").str.extract("([^#/]*)$").replace_strict(_SYNONYMS, default=None))
    )
    bad = synonyms.filter(pl.col("tag").is_null() | pl.col("val").is_null())
    for node, pred, val in bad.select("id", "pred", "val").iter_rows():
        problem = f"a synonym of {node} has pred {pred!r} and val {val!r}"
        inputs.reject_row(
            FormatError(name, None, problem, hint="pred is hasExactSynonym or similar, val a text")
        )
    return synonyms.drop_nulls("tag").select("concept", "tag", value="val")


def _properties(rows: pl.DataFrame) -> pl.DataFrame:
    """Flatten the `basicPropertyValues` of rows with a `meta` column, keeping `concept`."""
    pairs = rows.with_columns(pair=pl.col("meta").struct.field("basicPropertyValues")).explode("pair")
    return pairs.drop_nulls("pair").unnest("pair").select(pl.col("^concept$"), "pred", "val")
