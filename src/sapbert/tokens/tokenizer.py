"""Tokenize names with the `tokenizers` package; shared by torch and ONNX Runtime."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sapbert.tokens.batching import TokenRows

if TYPE_CHECKING:
    from tokenizers import Tokenizer


_ANY_NAME = "a"


def tokenize_names(tokenizer: Tokenizer, names: Sequence[str]) -> TokenRows:
    """Return the tokens of each name, with special tokens, truncated as the tokenizer is configured."""
    rows = tokenizer.encode_batch_fast(valid_texts(names))
    before, after = _special_token_counts(tokenizer)
    return TokenRows.framed((row.ids for row in rows), before, after)


def _special_token_counts(tokenizer: Tokenizer) -> tuple[int, int]:
    """Return the number of special tokens before and after each name."""
    # One name is enough: reading the flags of all names takes as long as reading their tokens.
    added = tokenizer.num_special_tokens_to_add(is_pair=False)
    flags = tokenizer.encode_batch_fast([_ANY_NAME])[0].special_tokens_mask
    before = flags.index(0) if 0 in flags else added
    return before, added - before


def valid_texts(names: Sequence[str]) -> list[str]:
    """Replace lone surrogates, which JSON may contain and tokenizers refuse."""
    try:
        "".join(names).encode()
    except UnicodeEncodeError:
        return [name.encode(errors="replace").decode() for name in names]
    return list(names)
