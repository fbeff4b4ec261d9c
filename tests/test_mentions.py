from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

from sapbert.errors import FormatError
from sapbert.mentions import (
    LabelledMention,
    in_vocabulary,
    is_nil,
    no_known_concept,
    read_labelled_mentions,
    resolve_concepts,
    split_ids,
    text_concept_pairs,
)
from sapbert.vocab.input_files import InputReader
from sapbert.vocab.vocabulary import Vocabulary
from sapbert.vocab.writer import write_vocabulary

Save = Callable[[str], Path]


@pytest.fixture
def save(tmp_path: Path) -> Save:
    """Write a table of mentions and return its path."""

    def write(rows: str) -> Path:
        table = tmp_path / "mentions.tsv"
        table.write_text(f"mention\tconcept_ids\ttext\n{rows}")
        return table

    return write


def labelled(text: str, *ids: str, context: str = "") -> LabelledMention:
    return LabelledMention(text, frozenset(ids), context)


def test_each_part_of_a_composite_mention_is_a_mention(save: Save) -> None:
    table = save(
        "Heart attack\tD009203\t\n"
        "breast cancer|ovarian cancer\tD001943|D010051\t\n"
        "either\tD000001|D000002\t\n"
        "either\tD000002+D000001\t\n"
        "nothing\t-\t\n"
        "one|two\tD000001\t\n"
    )

    mentions = read_labelled_mentions(table, InputReader())

    assert list(mentions) == [
        labelled("heart attack", "mesh:D009203"),
        labelled("breast cancer", "mesh:D001943"),
        labelled("ovarian cancer", "mesh:D010051"),
        labelled("nothing"),
        labelled("either", "mesh:D000001", "mesh:D000002"),
        labelled("either", "mesh:D000001", "mesh:D000002"),
    ]
    assert [mention.row for mention in mentions] == [0, 1, 1, 4, 2, 3]
    assert mentions.rows == 6


def test_a_prefix_is_for_ids_without_one(save: Save) -> None:
    table = save("fever\tx\t\nfever\tMSH:D1\t\n")

    assert text_concept_pairs(read_labelled_mentions(table, InputReader())) == [("fever", "mesh:D1")]
    assert text_concept_pairs(read_labelled_mentions(table, InputReader(), prefix="hp")) == [
        ("fever", "hp:x"),
        ("fever", "mesh:D1"),
    ]


def test_the_context_is_read_from_the_named_column(save: Save) -> None:
    table = save("fever\tx:1\tShe has a fever.\n")

    assert list(read_labelled_mentions(table, InputReader(), context_column="text")) == [
        labelled("fever", "x:1", context="She has a fever.")
    ]
    with pytest.raises(FormatError, match=r"^mentions\.tsv:1: no column 'sentence' among: mention, concept"):
        read_labelled_mentions(table, InputReader(), context_column="sentence")


def test_gold_ids_become_those_of_the_vocabulary(tmp_path: Path) -> None:
    with write_vocabulary(tmp_path / "vocabulary", {}, InputReader()) as writer:
        writer.add(pl.DataFrame({"concept_id": ["x:1", "x:2", "x:3"], "name": ["a", "b", "c"]}))
        aliases = {"concept_id": ["x:1", "x:1", "x:2"], "alias": ["y:1", "x:3", "y:1"]}
        writer.add_facts("aliases", pl.DataFrame(aliases))
    mentions = [labelled("alias", "y:1"), labelled("both", "x:3", "z:9"), labelled("unknown", "z:9")]

    resolved = resolve_concepts(mentions, in_vocabulary(Vocabulary.open(tmp_path / "vocabulary")))

    assert resolved == [labelled("alias", "x:1", "x:2"), labelled("both", "x:3"), labelled("unknown")]


def test_the_error_about_unknown_concepts_names_an_id_and_the_option() -> None:
    error = no_known_concept([labelled("a", "x:2", "x:1")], "INDEX", table=Path("t.tsv"), option="--p")

    assert str(error) == (
        "t.tsv: no mention has a concept of INDEX, which knows none of 2 ids such as x:1 "
        "(if ids have no prefix, add one: --p mesh reads D009203 as mesh:D009203)"
    )
    assert str(no_known_concept([], "INDEX")).startswith("no mention has a concept of INDEX (if ids")


def test_ids_are_split_at_bars_and_plus_signs() -> None:
    assert split_ids(pl.Series(["a|b+c", "d", ""])).to_list() == [["a", "b", "c"], ["d"], [""]]
    assert is_nil(pl.Series(["", " ", "-1", "CUI-less", "NaN", "D1"])).to_list() == [True] * 5 + [False]
