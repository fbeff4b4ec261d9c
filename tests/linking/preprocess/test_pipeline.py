"""Preprocessing of a stream of mentions."""

from __future__ import annotations

import polars as pl
import pytest

from sapbert.errors import ConfigError
from sapbert.linking.input.mentions import MentionRow, MentionStream, mentions_from_list
from sapbert.linking.preprocess.pipeline import expand_mentions, split_mentions

DOCUMENT = "Familial adenomatous polyposis (FAP) is rare."


def table(*rows: tuple[str, str | None]) -> MentionStream:
    made = (MentionRow(mention, {"mention": mention, "text": text}) for mention, text in rows)
    return MentionStream(made, "mention", ("mention", "text"))


def test_abbreviations_are_expanded_and_added_as_a_column() -> None:
    prepared = expand_mentions(table(("FAP", DOCUMENT), ("FAP", None), ("FAP", "")), "text")

    assert prepared.columns == ("mention", "text", "expanded")
    first, *others = prepared.rows
    assert first.mention == first.row["expanded"] == "Familial adenomatous polyposis"
    assert first.row["mention"] == "FAP"
    assert [row.mention for row in others] == ["FAP", "FAP"]


def test_a_composite_mention_becomes_several_rows() -> None:
    prepared = split_mentions(table(("breast and ovarian cancer", "x"), ("fever", "y")), lambda _: False)

    assert prepared.columns == ("mention", "text", "part")
    assert [(row.mention, row.row["mention"], row.row["text"]) for row in prepared.rows] == [
        ("breast cancer", "breast and ovarian cancer", "x"),
        ("ovarian cancer", "breast and ovarian cancer", "x"),
        ("fever", "fever", "y"),
    ]


def test_a_name_is_not_split() -> None:
    prepared = split_mentions(mentions_from_list(["cleft lip and cleft palate"]), lambda mention: True)

    assert [row.mention for row in prepared.rows] == ["cleft lip and cleft palate"]


def test_expanded_mentions_are_split() -> None:
    document = "breast and ovarian cancer (BOC)"

    prepared = split_mentions(expand_mentions(table(("BOC", document)), "text"), lambda _: False)

    assert [row.mention for row in prepared.rows] == ["breast cancer", "ovarian cancer"]


def test_the_schema_of_a_typed_input_is_kept() -> None:
    typed = MentionStream(iter(()), "mention", ("mention",), {"mention": pl.String})

    assert split_mentions(typed, bool).schema == {"mention": pl.String, "part": pl.String}


def test_a_missing_document_column_is_reported_with_the_most_similar() -> None:
    with pytest.raises(ConfigError, match=r"no column 'txt'.*did you mean 'text'"):
        expand_mentions(table(), "txt")


def test_an_input_column_with_a_reserved_name_is_refused() -> None:
    taken = MentionStream(iter(()), "mention", ("mention", "part"))

    with pytest.raises(ConfigError, match="column 'part'"):
        split_mentions(taken, bool)
