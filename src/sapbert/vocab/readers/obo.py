"""Read an ontology: OBO 1.2 and 1.4 text here, OBO Graphs JSON and OWL in `obograph` and `owl`.

The format is detected from the content, because file names are unreliable.

OBO text consists of stanzas of `tag: value` lines. Blocks are split between stanzas, so they can be parsed in
parallel: a column of lines, the stanza of a line by counting headers, tags and values by regular expressions.
Of a `[Term]`, the id, name, synonyms, xrefs, alt_ids, namespace, is_obsolete, replaced_by, def, is_a and
part_of are read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import polars as pl

from sapbert.errors import FormatError
from sapbert.parallel import ordered_map
from sapbert.vocab.input_files import InputFile, InputReader, Release
from sapbert.vocab.readers.obograph import read_obograph
from sapbert.vocab.readers.ontology import Ontology
from sapbert.vocab.readers.owl import read_owl
from sapbert.vocab.readers.settings import OboSettings
from sapbert.vocab.writer import VocabularyWriter

__all__ = ["OboSettings", "read_obo"]

_SNIFFED_BYTES = 1 << 16
_OBO_LINE = re.compile(rb"^(?:format-version|ontology|default-namespace):|^\[Term\]", re.MULTILINE)
_CONVERT_HINT = "give OBO, OBO Graphs JSON or OWL as RDF/XML; ROBOT converts others to these"

# A quoted value may contain escaped quotes. polars runs the expressions below; its engine never backtracks.
_QUOTED = r'"(?:[^"\\]|\\.)*"'
_MODIFIER = rf"[^\s={{}}\"]+\s*=\s*{_QUOTED}"
_MODIFIERS = rf"\s*\{{\s*{_MODIFIER}(?:\s*,\s*{_MODIFIER})*\s*\}}\s*(?:!.*)?$"
_COMMENT = r"(?:^|\s)!.*$"
_DESCRIBED = rf'^([^"{{!]*?)\s+{_QUOTED}.*$'
_SYNONYM = r'(?i)^"((?:[^"\\]|\\.)*)"(?:\s+(EXACT|RELATED|NARROW|BROAD)(?:\s+[^\s\[\]{}!]+)?)?\s*(?:[\[{!]|$)'
_SYNONYMS = {
    "synonym": None,
    "exact_synonym": "exact",
    "related_synonym": "related",
    "narrow_synonym": "narrow",
    "broad_synonym": "broad",
}
"""Tag → scope. The tags with a scope are from OBO 1.0; version 1.2 still allows them."""
_VALUES = {
    "name": "name",
    "xref": "xref",
    "alt_id": "alias",
    "namespace": "namespace",
    "is_obsolete": "obsolete",
    "replaced_by": "successor",
}
_TEXT = r'^"((?:[^"\\]|\\.)*)"'
_PARENT = r"^(?:(?:part_of|BFO:0000050)\s+)?([^\s{!]+)\s*(?:[{!]|$)"
"""A class, or `part_of` and a class; other relationships have another word before the class."""
_CONDITIONAL = "gci_relation"
"""A modifier of parents that only some members of a class have."""
_CONTINUED = re.compile(rb"^(?:(?:[^\\\r\n]|\\[^\r\n])*\\\r?\n)+[^\n]*", re.MULTILINE)


def read_obo(path: Path, writer: VocabularyWriter, inputs: InputReader, settings: OboSettings) -> None:
    """Read one ontology file in any of the three formats, plain or gzip."""
    source = _only_file(path)
    ontology = Ontology(source.name, writer, settings)
    _reader_of(source, inputs)(source, inputs, ontology)
    ontology.finish()


def _only_file(path: Path) -> InputFile:
    members = Release(path).members
    if path.is_dir() or len(members) != 1:
        hint = "give the .obo, .json or .owl file itself"
        raise FormatError(path, None, f"contains {len(members)} files, expected one ontology", hint=hint)
    return InputFile(members[0].plain_name, (members[0],))


def _reader_of(source: InputFile, inputs: InputReader) -> Callable[[InputFile, InputReader, Ontology], None]:
    with inputs.stream(source) as stream:
        start = stream.read(_SNIFFED_BYTES).removeprefix(b"\xef\xbb\xbf")
    stripped = start.lstrip()
    if not stripped:
        raise FormatError(source.name, None, "the file is empty", hint="download it again")
    # XML may be in UTF-16, which starts with a byte order mark.
    if stripped.startswith((b"<", b"\xff\xfe<", b"\xfe\xff\0<")):
        return read_owl
    if stripped.startswith(b"{"):
        return read_obograph
    if _OBO_LINE.search(start):
        return _read_text
    line = stripped.splitlines()[0][:80].decode("utf-8", "replace")
    raise FormatError(source.name, 1, f"unknown ontology format, found {line!r}", hint=_CONVERT_HINT)


class _Block(NamedTuple):
    """Some complete stanzas."""

    data: bytes
    line: int
    """Number of their first line."""


class _Stanzas(NamedTuple):
    """The content of the `[Term]` stanzas of a block."""

    ids: pl.Series
    statements: pl.DataFrame
    default_namespace: str | None
    errors: list[FormatError]


def _read_text(source: InputFile, inputs: InputReader, ontology: Ontology) -> None:
    def parse(block: _Block) -> _Stanzas:
        return _parse(block, source.name)

    for stanzas in ordered_map(parse, _complete_stanzas(inputs.blocks(source))):
        for error in stanzas.errors:
            inputs.reject_row(error)
        if stanzas.default_namespace is not None:
            ontology.default_namespace = stanzas.default_namespace
        ontology.add(stanzas.ids, stanzas.statements)


def _complete_stanzas(blocks: Iterable[bytes]) -> Iterator[_Block]:
    """Regroup blocks so that each but the first begins with a `[Term]`."""
    line, pending = 1, b""
    for block in blocks:
        data = pending + block
        end = data.rfind(b"\n[Term]") + 1
        if end:
            yield _Block(data[:end], line)
            line += data.count(b"\n", 0, end)
        pending = data[end:]
    yield _Block(pending, line)


def _parse(block: _Block, name: str) -> _Stanzas:
    data = block.data
    if b"\\\n" in data or b"\\\r\n" in data:
        data = _CONTINUED.sub(_join_lines, data)
    text, errors = _decode(data, block.line, name)
    lines = _lines(text, block.line)
    terms = lines.filter(pl.col("stanza_kind") == "Term")
    ids, problems = _concept_ids(terms)
    rows = terms.join(ids.select("stanza", "concept"), on="stanza", maintain_order="left")
    synonyms, bad_synonyms = _synonyms(rows)
    problems = pl.concat([problems, bad_synonyms, _bad_lines(terms)]).sort("line")
    errors += [FormatError(name, line, problem, hint=hint) for line, problem, hint in problems.iter_rows()]
    # The lines before the first stanza are the header of the file.
    header = lines.filter((pl.col("stanza") == 0) & (pl.col("tag") == "default-namespace"))
    default = header.select(_plain(pl.col("value"))).to_series()
    namespace = default[0] if header.height else None
    statements = pl.concat([_values(rows), synonyms, _parents(rows), _definitions(rows)])
    return _Stanzas(ids["id"], statements, namespace, errors)


def _join_lines(match: re.Match[bytes]) -> bytes:
    """Join lines continued by a backslash; blank lines are added to keep the line numbers."""
    lines = match.group()
    return re.sub(rb"\\\r?\n", b"", lines) + b"\n" * lines.count(b"\n")


def _decode(data: bytes, first: int, name: str) -> tuple[str, list[FormatError]]:
    """Decode a block; a line that is not UTF-8 becomes a blank line and an error."""
    try:
        return data.decode(), []
    except UnicodeDecodeError:
        good, errors = [], []
        for number, line in enumerate(data.split(b"\n"), first):
            try:
                good.append(line.decode())
            except UnicodeDecodeError as error:
                problem = f"byte 0x{line[error.start]:02x} in column {error.start + 1} is not UTF-8"
                errors.append(FormatError(name, number, problem, hint="the file must be UTF-8"))
                good.append("")
        return "\n".join(good), errors


def _lines(text: str, first: int) -> pl.DataFrame:
    """Return the lines with content: number, stanza and its kind, tag and value."""
    column = pl.Series("text", [text]).str.split("\n").explode().str.strip_chars()
    kind = pl.col("text").str.extract(r"^\[([A-Za-z]+)\]")
    # Several times faster than a regular expression with groups, and this runs on every line.
    parts = pl.col("text").str.splitn(":", 2).struct
    return (
        column.to_frame()
        .with_row_index("line", first)
        .filter((pl.col("text") != "") & ~pl.col("text").str.starts_with("!"))
        .with_columns(header=kind.is_not_null(), stanza_kind=kind.forward_fill())
        .with_columns(
            stanza=pl.col("header").cum_sum(),
            tag=parts[0].str.strip_chars_end(),
            value=parts[1].str.strip_chars_start(),
        )
    )


_PROBLEM = {"line": pl.UInt32, "problem": pl.String, "hint": pl.String}


def _problems(lines: pl.DataFrame, problem: pl.Expr | str, hint: str | None = None) -> pl.DataFrame:
    text = pl.lit(problem) if isinstance(problem, str) else problem
    selected = lines.select(line="line", problem=text, hint=pl.lit(hint, dtype=pl.String))
    return selected.cast(_PROBLEM)  # type: ignore[arg-type]  # a mapping of types is a schema


def _concept_ids(terms: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return the id of each valid stanza, and the problems of stanzas with no id or two."""
    ids = terms.filter((pl.col("tag") == "id") & (pl.col("value") != ""))
    first = ids.unique("stanza", keep="first", maintain_order=True)
    second = ids.filter(pl.col("stanza").is_duplicated() & ~pl.col("stanza").is_first_distinct())
    without = terms.filter("header").join(first, on="stanza", how="anti")
    valid = first.join(second, on="stanza", how="anti", maintain_order="left").with_row_index("concept")
    problems = [
        _problems(without, "a [Term] without an id"),
        _problems(second, "a second id in one stanza", "is a [Term] line missing?"),
    ]
    return valid.select("stanza", "concept", id=_plain(pl.col("value"))), pl.concat(problems)


def _bad_lines(terms: pl.DataFrame) -> pl.DataFrame:
    no_tag = pl.col("value").is_null() | pl.col("tag").str.contains(r"^$|\s")
    bad = terms.filter(no_tag & ~pl.col("header"))
    return _problems(bad, pl.format("expected `tag: value`, found {}", pl.col("text").str.head(80)))


def _values(rows: pl.DataFrame) -> pl.DataFrame:
    """Return the statements of all lines except synonyms."""
    tag, value = pl.col("tag"), pl.col("value")
    undescribed = value.str.replace(_DESCRIBED, "${1}")
    statements = rows.filter(tag.is_in(list(_VALUES))).with_columns(
        tag=tag.replace_strict(_VALUES, return_dtype=pl.String),
        value=_plain(pl.when(tag == "xref").then(undescribed).otherwise(value)),
    )
    return _statements(statements.filter((tag != "obsolete") | (pl.col("value") == "true")))


def _synonyms(rows: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return the statements of synonym lines, and the lines that cannot be parsed."""
    tag, parts = pl.col("tag"), pl.col("value").str.extract_groups(_SYNONYM).struct
    synonyms = rows.filter(tag.is_in(list(_SYNONYMS))).with_columns(
        synonym=_unescape(parts.field("1")),
        # In OBO 1.2, a synonym without a scope is related.
        scope=pl.coalesce(
            tag.replace_strict(_SYNONYMS, return_dtype=pl.String),
            parts.field("2").str.to_lowercase(),
            pl.lit("related"),
        ),
    )
    bad = synonyms.filter(pl.col("synonym").is_null())
    problem = pl.format("cannot read the synonym {}", pl.col("value").str.head(80))
    good = synonyms.drop_nulls("synonym").with_columns(tag="scope", value="synonym")
    return _statements(good), _problems(bad, problem, 'it must look like synonym: "text" EXACT []')


def _parents(rows: pl.DataFrame) -> pl.DataFrame:
    tag, value = pl.col("tag"), pl.col("value")
    links = rows.filter(
        tag.is_in(["is_a", "relationship"]), ~value.str.contains(_CONDITIONAL, literal=True)
    ).with_columns(
        tag=pl.when(tag == "is_a").then(tag).otherwise(pl.lit("part_of")),
        value=_unescape(value.str.extract(_PARENT)),
    )
    return _statements(links.drop_nulls("value"))


def _definitions(rows: pl.DataFrame) -> pl.DataFrame:
    defined = rows.filter(pl.col("tag") == "def")
    texts = defined.with_columns(
        tag=pl.lit("definition"), value=_unescape(pl.col("value").str.extract(_TEXT))
    )
    return _statements(texts.drop_nulls("value"))


def _statements(rows: pl.DataFrame) -> pl.DataFrame:
    return rows.select("concept", "tag", "value", language=pl.lit(None, dtype=pl.String))


def _without_trailer(value: pl.Expr) -> pl.Expr:
    """Remove modifiers `{key="value"}` and a comment `! …` from the end of a value."""
    return value.str.replace(_MODIFIERS, "").str.replace(_COMMENT, "").str.strip_chars()


def _plain(value: pl.Expr) -> pl.Expr:
    return _unescape(_without_trailer(value))


def _unescape(value: pl.Expr) -> pl.Expr:
    """Resolve escapes; an escaped backslash is NUL meanwhile, lest it escape the next character."""
    hidden = value.str.replace_all("\0", " ", literal=True).str.replace_all(r"\\\\", "\0")
    plain = hidden.str.replace_all(r"\\[ntW]", " ").str.replace_all(r"\\(.)", "${1}")
    return plain.str.replace_all("\0", "\\", literal=True)
