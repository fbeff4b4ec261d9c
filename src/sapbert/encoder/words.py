"""BERT's tokenizer word by word: what was found of a word once is not looked for again.

The `tokenizers` package takes thirty microseconds a name, most of it to note what nobody reads. Names of a
vocabulary are made of few words, and BERT splits at every space and sign, so a table of words finds the same
tokens in half the time. It does so for names in plain ASCII; others go to the tokenizer, and so do all
where the tokenizer is not BERT's. It needs Python's lock throughout, so it is for processes of their own.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

from sapbert.encoder.batching import TokenRows
from sapbert.encoder.tokens import frame, readable

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_MOST_WORDS = 1_000_000
"""Words that are remembered: a few hundred megabytes."""
_KIND = {"normalizer": "BertNormalizer", "pre_tokenizer": "BertPreTokenizer", "model": "WordPiece"}
_ANY_NAME = "a"


def can_split(tokenizer: Tokenizer) -> bool:
    """Tell whether a tokenizer is BERT's, and cuts names at their end if at all."""
    settings = json.loads(tokenizer.to_str())
    if any((settings[part] or {}).get("type") != kind for part, kind in _KIND.items()):
        return False
    cut = tokenizer.truncation
    # A token that is a word of its own could be part of any name.
    return (cut is None or cut["direction"] == "right") and not any(
        token["content"][:1].isalnum() or not token["content"].isascii() for token in settings["added_tokens"]
    )


class Words:
    """Splits names as a tokenizer does that `can_split`."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        settings: dict[str, Any] = json.loads(tokenizer.to_str())
        model = settings["model"]
        prefix, vocabulary = model["continuing_subword_prefix"], model["vocab"]
        self._heads = vocabulary
        self._tails = {
            piece.removeprefix(prefix): n for piece, n in vocabulary.items() if piece.startswith(prefix)
        }
        self._longest, self._most = max(map(len, vocabulary)), model["max_input_chars_per_word"]
        self._unknown = [vocabulary[model["unk_token"]]]
        self._lower: bool = settings["normalizer"]["lowercase"]
        self._find = re.compile("[A-Za-z0-9]+|[^ A-Za-z0-9]").findall
        added = {token["content"][0] for token in settings["added_tokens"]}
        self._marked = (
            re.compile(f"[{re.escape(''.join(sorted(added)))}]").search if added else lambda _: None
        )
        self._tokenizer, self._known = tokenizer, dict[str, list[int]]()
        before, after = self._frame = frame(tokenizer)
        framed = tokenizer.encode_batch_fast([_ANY_NAME])[0].ids
        self._before, self._after = framed[:before], framed[len(framed) - after :]
        cut = tokenizer.truncation
        self._room = None if cut is None else cut["max_length"] - before - after

    def split(self, names: Sequence[str]) -> TokenRows:
        """Split names into tokens as `tokens.split` does."""
        names = readable(names)
        words = [self._words(name) for name in names]
        if len(self._known) > _MOST_WORDS:
            self._known.clear()
        for word in set(chain.from_iterable(filter(None, words))).difference(self._known):
            self._known[word] = self._pieces(word)
        known, room, before, after = self._known.__getitem__, self._room, self._before, self._after
        others = [name for name, found in zip(names, words, strict=True) if found is None]
        told = iter(self._tokenizer.encode_batch_fast(others))
        ids = (
            next(told).ids
            if found is None
            else [*before, *[*chain.from_iterable(map(known, found))][:room], *after]
            for found in words
        )
        return TokenRows.framed(ids, *self._frame)

    def _words(self, name: str) -> list[str] | None:
        """Split a name at spaces and signs; None where that takes more than ASCII."""
        if not (name.isascii() and name.isprintable()) or self._marked(name):
            return None
        found: list[str] = self._find(name.lower() if self._lower else name)
        return found

    def _pieces(self, word: str) -> list[int]:
        """Take the longest piece that a word begins with, and so on."""
        if len(word) > self._most:
            return self._unknown
        found, table, start = [], self._heads, 0
        while start < len(word):
            end = min(len(word), start + self._longest)
            while end > start and word[start:end] not in table:
                end -= 1
            if end == start:
                return self._unknown
            found.append(table[word[start:end]])
            start, table = end, self._tails
        return found
