"""A table of words finds what the tokenizer finds: `tokens.split` is the oracle."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

from sapbert.encoder import words
from sapbert.encoder.tokens import split
from sapbert.encoder.words import Words, can_split

PIECES = [
    "fever",
    "fe",
    "##ver",
    "##s",
    "a",
    "##a",
    "b",
    "##b",
    "B",
    "##1",
    "1",
    ",",
    "-",
    "##,",
    "(",
    "]",
    "é",
]
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]


def bert(*, lowercase: bool = True, cut: int | None = 6) -> Tokenizer:
    vocabulary = {piece: number for number, piece in enumerate([*SPECIAL, *PIECES])}
    made = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]", max_input_chars_per_word=8))
    made.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    made.add_special_tokens(SPECIAL)
    if cut is not None:
        made.enable_truncation(cut)
    return made


def assert_same(tokenizer: Tokenizer, names: list[str]) -> None:
    assert can_split(tokenizer)
    found, expected = Words(tokenizer).split(names), split(tokenizer, names)
    for part in ("ids", "special", "offsets"):
        np.testing.assert_array_equal(getattr(found, part), getattr(expected, part))


@given(
    st.lists(
        st.text(st.sampled_from("abBfevrsFEVRS1, -()[]é\t\u0301Σ漢\x00_~") | st.characters(), max_size=12)
    ),
    st.booleans(),
    st.sampled_from([None, 2, 3, 6]),
)
def test_names_of_any_kind_are_split_as_the_tokenizer_does(
    names: list[str], lowercase: bool, cut: int | None
) -> None:
    names += ["fevers a,b", "FEVER", "[CLS] a [SEP]", "##s", "", " ", "aaaaaaaa", "aaaaaaaaa", "fever-1 (b)"]
    assert_same(bert(lowercase=lowercase, cut=cut), names)


def test_words_that_were_met_are_forgotten_where_there_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(words, "_MOST_WORDS", 2)
    tokenizer = bert()
    table = Words(tokenizer)
    for names in (["a b fever"], ["a 1"], ["b s, fever"], ["1"]):
        np.testing.assert_array_equal(table.split(names).ids, split(tokenizer, names).ids)
    assert list(table._known) == ["1"]


def test_other_tokenizers_are_left_to_themselves() -> None:
    spoken, left, other = bert(), bert(), bert()
    spoken.add_tokens(["fever"])
    left.enable_truncation(6, direction="left")
    other.pre_tokenizer = pre_tokenizers.Whitespace()
    assert not any(map(can_split, (spoken, left, other)))
