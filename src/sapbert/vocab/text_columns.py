"""Operations on whole columns of names and identifiers.

Nearly all names are tidy and consist of letters for which folding is lowercasing. polars handles those, and
`text.fold` the few others. The tests compare each function with its counterpart for one string.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray

from sapbert.arrays import TextsWriter
from sapbert.curies import canonical_prefix, parse_curie
from sapbert.text import fold, tidy

_LOWERCASED = r"^[\x20-\x7eÀ-Þà-öø-ÿА-яЁё一-鿿ぁ-ゖァ-ヺー가-힣]*$"
"""Characters for which folding is lowercasing and nothing else, in any context."""

_SPREAD = np.uint64(0x9E3779B97F4A7C15)
"""An odd number whose multiples differ in many bits."""


def fold_names(names: pl.Series) -> pl.Series:
    """Apply `text.fold` to each name."""
    return fold_tidy_names(tidy_names(names))


def fold_tidy_names(names: pl.Series) -> pl.Series:
    """Apply `text.fold` to names that are already tidy, as those of a vocabulary are; takes half the time."""
    special = names.str.len_bytes() != names.str.len_chars()
    if special.any():
        rows = special.arg_true()
        special.scatter(rows, ~names.gather(rows).str.contains(_LOWERCASED))
    return _replace_special(names.str.to_lowercase(), names, special, fold)


def tidy_names(names: pl.Series) -> pl.Series:
    """Apply `text.tidy` to each name."""
    return _replace_special(names, names, _untidy(names), tidy)


def to_curies(ids: pl.Series, *, prefix: str | None = None) -> pl.Series:
    """Apply `curies.parse_curie` to each identifier; null if it is not one."""
    full = ids
    if prefix is not None:
        has_prefix = ids.str.contains(":", literal=True)
        full = ids.zip_with(has_prefix, f"{canonical_prefix(prefix)}:" + ids)
    heads = full.str.extract(r"^([^:]*):", 1)
    # What Python considers white space is \s and \x1c to \x1f.
    regular = full.str.contains(r"^[A-Za-z0-9][A-Za-z0-9_.\-]*:[^\s:\x1c-\x1f]+$")
    spelling = {head: canonical_prefix(head) for head in heads.unique().drop_nulls()}
    fast = heads.replace(spelling) + full.str.slice(heads.str.len_chars().fill_null(0))
    return _replace_special(fast, ids, ~regular, lambda text: parse_curie(text, prefix=prefix))


def is_first_in_group(
    texts: pl.Series, hashes: NDArray[np.uint64], groups: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Return for each row whether it is the first of its group with its text.

    Equal texts must have equal hashes.
    """
    rows = possibly_repeated_rows(hashes ^ (groups.astype(np.uint64) * _SPREAD))
    candidates = pl.DataFrame({"text": texts.gather(rows), "group": groups[rows]})
    first = np.ones(len(texts), np.bool_)
    first[rows] = candidates.select(pl.struct(pl.all()).is_first_distinct()).to_series().to_numpy()
    return first


def possibly_repeated_rows(hashes: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Return the rows, ascending, of all hashes that occur more than once, and of very few others.

    The row number replaces the lowest bits of each hash, so sorting the values is enough, which takes a
    quarter of the time of an argsort. Rows whose hashes agree in all other bits are returned.
    """
    low = np.uint64((1 << len(hashes).bit_length()) - 1)
    ordered = np.sort((hashes & ~low) | np.arange(len(hashes), dtype=np.uint64))
    equal = (ordered[1:] ^ ordered[:-1]) <= low
    repeated = np.append(equal, False)
    repeated[1:] |= equal
    return np.sort((ordered[repeated[: len(ordered)]] & low).astype(np.int64))


def map_categories(column: pl.Series, numbers_of: Callable[[list[str]], ArrayLike]) -> NDArray[np.uint64]:
    """Return one number per row: the one that `numbers_of` gives the text of its category."""
    physical = column.to_physical().to_numpy()
    some_row = np.full(int(physical.max(initial=0)) + 1, -1)
    some_row[physical] = np.arange(len(physical))
    seen = np.flatnonzero(some_row >= 0)
    numbers = np.zeros(len(some_row), np.uint64)
    numbers[seen] = numbers_of(column.gather(some_row[seen]).cast(pl.String).to_list())
    per_row: NDArray[np.uint64] = numbers[physical]
    return per_row


def append_texts(texts: pl.Series, writer: TextsWriter) -> None:
    """Append a column to the files of `arrays.Texts`."""
    writer.append(texts.str.join("").cast(pl.Binary).item(), texts.str.len_bytes().to_numpy())


def _untidy(names: pl.Series) -> pl.Series:
    """Return which names contain any white space other than single inner spaces."""
    return names.str.contains(r"^ | $|  |[^\S ]|[\x00-\x1f\x7f-\x9f]")


def _replace_special(
    fast: pl.Series, original: pl.Series, special: pl.Series, slow: Callable[..., str | None]
) -> pl.Series:
    """Return `fast` with `slow(original)` in the `special` rows."""
    if not special.any():
        return fast
    replaced = [slow(text) for text in original.filter(special)]
    # `scatter` writes in place, and `fast` may be the column of the caller.
    return fast.clone().scatter(special.arg_true(), pl.Series(replaced, dtype=pl.String))
