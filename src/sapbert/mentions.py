"""Labelled mentions: texts whose concepts are known. One type, one reader, one mapping to a vocabulary.

The table is a TSV with the columns `mention` and `concept_ids`. As in the published benchmarks, `|` separates
the parts of a composite mention ("breast cancer|ovarian cancer") and their ids, part by part. A mention of
one part with several ids, joined by `|` or `+`, may mean any of them. Rows whose parts and ids do not match
are left out.

Pairs, BioSyn, the reranker, calibration and `link --mentions` read mentions here. Evaluation keeps its own
tables, because it scores a composite mention as a whole, and shares the parsing of ids.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import overload

import polars as pl

from sapbert.errors import FormatError, SapbertError
from sapbert.vocab.input_files import InputReader
from sapbert.vocab.readers.biosyn import medic_curies
from sapbert.vocab.tables import find_table, tsv_batches
from sapbert.vocab.text_columns import fold_names
from sapbert.vocab.vocabulary import Vocabulary

_COLUMNS = ("mention", "concept_ids")
_NIL_IDS = ("", "-1", "-", "cui-less", "none", "nil", "nan")
"""Lowercase ids that benchmarks write for "no concept"."""


@dataclass(frozen=True, slots=True)
class LabelledMention:
    """A mention and the concepts it means."""

    text: str
    """Folded."""
    concept_ids: frozenset[str]
    """Gold CURIEs, any of which is right; empty if the mention means no concept."""
    context: str = ""
    """The text around the mention; empty if it was not read."""
    row: int = field(default=-1, compare=False)
    """Row of the table, from 0; the parts of a composite mention share one."""


@dataclass(frozen=True, slots=True)
class LabelledMentions(Sequence[LabelledMention]):
    """The labelled mentions of one table; the parts of a composite mention are separate mentions."""

    mentions: tuple[LabelledMention, ...]
    rows: int
    """Rows of the table, also those whose parts and ids do not match."""

    def __len__(self) -> int:
        return len(self.mentions)

    @overload
    def __getitem__(self, place: int) -> LabelledMention: ...

    @overload
    def __getitem__(self, place: slice) -> Sequence[LabelledMention]: ...

    def __getitem__(self, place: int | slice) -> LabelledMention | Sequence[LabelledMention]:
        return self.mentions[place]


def read_labelled_mentions(
    table: Path, inputs: InputReader, *, prefix: str | None = None, context_column: str | None = None
) -> LabelledMentions:
    """Read the labelled mentions in `table` (TSV, may be gzip).

    `prefix` is for ids without one; without it, MeSH and OMIM ids are recognized by their form.
    `context_column` names the column with the text around a mention.
    """
    rows = _read_rows(table, inputs, context_column)
    contexts = [""] * rows.height if context_column is None else rows["context"].fill_null("").to_list()
    grouped = _label(rows, prefix).group_by("row", "text", maintain_order=True).agg("concept_id")
    mentions = (
        LabelledMention(text, frozenset(filter(None, ids)), contexts[row], row)
        for row, text, ids in grouped.iter_rows()
    )
    return LabelledMentions(tuple(mentions), rows.height)


Resolve = Callable[[Sequence[str]], Mapping[str, Collection[str]]]
"""Maps ids, which may be aliases, to the concepts of a vocabulary; leaves out ids that it does not have."""


def resolve_concepts(mentions: Iterable[LabelledMention], resolve: Resolve) -> list[LabelledMention]:
    """Replace gold ids by those of the concepts in a vocabulary, dropping ids that it does not have.

    Mentions that are left without a concept stay, with empty `concept_ids`.
    """
    mentions = list(mentions)
    known = resolve(distinct_ids(mentions))

    def concepts(mention: LabelledMention) -> frozenset[str]:
        return frozenset().union(*(known.get(curie, ()) for curie in mention.concept_ids))

    return [replace(mention, concept_ids=concepts(mention)) for mention in mentions]


def in_vocabulary(vocabulary: Vocabulary) -> Resolve:
    """Resolve ids in `vocabulary`: first as ids of its concepts, else as aliases."""
    return partial(_resolve_in_vocabulary, vocabulary)


def no_known_concept(
    mentions: Iterable[LabelledMention],
    target: str | Path,
    *,
    table: Path | None = None,
    option: str = "--prefix",
) -> SapbertError:
    """Return the error for mentions none of whose concepts is in `target`, an index or a vocabulary."""
    ids = distinct_ids(mentions)
    where = "" if table is None else f"{table}: "
    example = f", which knows none of {len(ids)} ids such as {ids[0]}" if ids else ""
    hint = f"if ids have no prefix, add one: {option} mesh reads D009203 as mesh:D009203"
    return SapbertError(f"{where}no mention has a concept of {target}{example} ({hint})")


def distinct_ids(mentions: Iterable[LabelledMention]) -> list[str]:
    """Return every gold id once, sorted."""
    return sorted(set().union(*(mention.concept_ids for mention in mentions)))


def text_concept_pairs(mentions: Iterable[LabelledMention]) -> list[tuple[str, str]]:
    """Return each text with each of its gold ids, every pair once."""
    pairs = ((mention.text, curie) for mention in mentions for curie in sorted(mention.concept_ids))
    return list(dict.fromkeys(pairs))


def split_ids(ids: pl.Series) -> pl.Series:
    """Split ids joined by `|` or `+`.  # strings -> lists of strings"""
    return ids.str.replace_all("+", "|", literal=True).str.split("|")


def is_nil(ids: pl.Series) -> pl.Series:
    """Return whether each id means "no concept": empty, `-1`, `CUI-less` and the like."""
    return ids.str.strip_chars().str.to_lowercase().is_in(_NIL_IDS)


def _read_rows(table: Path, inputs: InputReader, context_column: str | None) -> pl.DataFrame:
    """Read the columns `row`, `mention`, `concept_ids`, and `context` if its column is named."""
    source = find_table(table)
    roles = {column: column for column in _COLUMNS}
    if context_column is not None:
        roles["context"] = context_column

    def choose(header: list[str]) -> dict[str, str]:
        for column in roles.values():
            if column not in header:
                problem = f"no column {column!r} among: {', '.join(header)[:200]}"
                raise FormatError(source.name, 1, problem, hint="give a TSV with a header")
        return roles

    return pl.concat(batch.frame for batch in tsv_batches(source, inputs, choose)).with_row_index("row")


def _label(rows: pl.DataFrame, prefix: str | None) -> pl.DataFrame:
    """One row per mention part and id: `row`, `text`, `concept_id` (null if it is not a CURIE)."""
    parts = rows.select("row", text=pl.col("mention").str.split("|"), id=split_ids(rows["concept_ids"]))
    part_by_part = parts.filter(pl.col("text").list.len() == pl.col("id").list.len()).explode("text", "id")
    any_of = (
        parts.filter(pl.col("text").list.len() == 1, pl.col("id").list.len() > 1)
        .explode("text")
        .explode("id")
    )
    labelled = pl.concat([part_by_part, any_of])
    curies = medic_curies(labelled["id"], prefix)
    return labelled.select(
        "row",
        text=fold_names(labelled["text"]),
        concept_id=pl.select(pl.when(~is_nil(labelled["id"])).then(curies)).to_series(),
    ).filter(pl.col("text") != "")


def _resolve_in_vocabulary(vocabulary: Vocabulary, ids: Sequence[str]) -> dict[str, list[str]]:
    gold = pl.LazyFrame({"concept_id": ids}, schema={"concept_id": pl.String})
    concepts = gold.join(vocabulary.names, on="concept_id", how="semi")
    others = gold.join(vocabulary.names, on="concept_id", how="anti")
    aliases = others.join(vocabulary.aliases, left_on="concept_id", right_on="alias").select(
        id="concept_id", concept="concept_id_right"
    )
    resolved = pl.concat([concepts.select(id="concept_id", concept="concept_id"), aliases]).collect()
    return dict(resolved.group_by("id").agg("concept").iter_rows())
