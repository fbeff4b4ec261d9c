"""Names to token ids, through the `tokenizers` package alone; torch and ONNX Runtime share it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sapbert.encoder.batching import TokenRows

if TYPE_CHECKING:
    from tokenizers import Tokenizer


def split(tokenizer: Tokenizer, names: Sequence[str]) -> TokenRows:
    """Split names into tokens, special ones included, cut as the tokenizer is set to cut them."""
    rows = tokenizer.encode_batch_fast(readable(names))
    return TokenRows.of((row.ids for row in rows), (row.special_tokens_mask for row in rows))


def readable(names: Sequence[str]) -> list[str]:
    """Return `names` as text: half a surrogate pair, which JSON can carry, is none to a tokenizer."""
    return [name.encode(errors="replace").decode() for name in names]
