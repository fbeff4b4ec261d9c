"""Names to token ids, through the `tokenizers` package alone; torch and ONNX Runtime share it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sapbert.tokens.batching import TokenRows

if TYPE_CHECKING:
    from tokenizers import Tokenizer


_ANY_NAME = "a"


def split(tokenizer: Tokenizer, names: Sequence[str]) -> TokenRows:
    """Split names into tokens, special ones included, cut as the tokenizer is set to cut them."""
    rows = tokenizer.encode_batch_fast(readable(names))
    before, after = _frame(tokenizer)
    return TokenRows.framed((row.ids for row in rows), before, after)


def _frame(tokenizer: Tokenizer) -> tuple[int, int]:
    """Return how many special tokens are put before and after any name."""
    # Read off one name, for to read the flags of all takes as long as to read their tokens.
    added = tokenizer.num_special_tokens_to_add(is_pair=False)
    flags = tokenizer.encode_batch_fast([_ANY_NAME])[0].special_tokens_mask
    before = flags.index(0) if 0 in flags else added
    return before, added - before


def readable(names: Sequence[str]) -> list[str]:
    """Return `names` as text: half a surrogate pair, which JSON can carry, is none to a tokenizer."""
    try:
        "".join(names).encode()
    except UnicodeEncodeError:
        return [name.encode(errors="replace").decode() for name in names]
    return list(names)
