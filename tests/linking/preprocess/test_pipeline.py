"""MentionStream made ready for linking."""

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


def test_short_forms_of_the_document_are_written_out_and_shown() -> None:
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


def test_written_out_mentions_are_split() -> None:
    document = "breast and ovarian cancer (BOC)"

    prepared = split_mentions(expand_mentions(table(("BOC", document)), "text"), lambda _: False)

    assert [row.mention for row in prepared.rows] == ["breast cancer", "ovarian cancer"]


def test_typed_inputs_stay_typed() -> None:
    typed = MentionStream(iter(()), "mention", ("mention",), {"mention": pl.String})

    assert split_mentions(typed, bool).schema == {"mention": pl.String, "part": pl.String}


def test_a_missing_document_column_is_told_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"no column 'txt'.*did you mean 'text'"):
        expand_mentions(table(), "txt")


def test_a_column_that_would_be_written_over_is_refused() -> None:
    taken = MentionStream(iter(()), "mention", ("mention", "part"))

    with pytest.raises(ConfigError, match="column 'part'"):
        split_mentions(taken, bool)
