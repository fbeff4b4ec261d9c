"""Whole columns of names and identifiers, without a Python loop where one can be spared.

Nearly all names are tidy and of letters for which folding is lowercasing; polars does those, and
`text.fold` the few others. Tests hold each function to its one-string counterpart.
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
"""Letters of which folding makes the lowercase and nothing else, whatever stands beside them."""

_SPREAD = np.uint64(0x9E3779B97F4A7C15)
"""An odd number whose multiples are far from each other in all bits."""


def fold_names(names: pl.Series) -> pl.Series:
    """`text.fold` of each name."""
    return fold_tidy_names(tidy_names(names))


def fold_tidy_names(names: pl.Series) -> pl.Series:
    """`text.fold` of each name that is tidy, as those of a vocabulary are: half the work."""
    special = names.str.len_bytes() != names.str.len_chars()
    if special.any():
        rows = special.arg_true()
        special.scatter(rows, ~names.gather(rows).str.contains(_LOWERCASED))
    return _mend(names.str.to_lowercase(), names, special, fold)


def tidy_names(names: pl.Series) -> pl.Series:
    """`text.tidy` of each name."""
    return _mend(names, names, _untidy(names), tidy)


def to_curies(ids: pl.Series, *, prefix: str | None = None) -> pl.Series:
    """`curies.parse_curie` of each identifier; null where it is none."""
    full = ids
    if prefix is not None:
        has_prefix = ids.str.contains(":", literal=True)
        full = ids.zip_with(has_prefix, f"{canonical_prefix(prefix)}:" + ids)
    heads = full.str.extract(r"^([^:]*):", 1)
    # Python's blanks are these and \x1c to \x1f.
    regular = full.str.contains(r"^[A-Za-z0-9][A-Za-z0-9_.\-]*:[^\s:\x1c-\x1f]+$")
    spelling = {head: canonical_prefix(head) for head in heads.unique().drop_nulls()}
    fast = heads.replace(spelling) + full.str.slice(heads.str.len_chars().fill_null(0))
    return _mend(fast, ids, ~regular, lambda text: parse_curie(text, prefix=prefix))


def is_first_in_group(
    texts: pl.Series, hashes: NDArray[np.uint64], groups: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Tell of each row whether no row above it of its group has its text; equal texts have equal hashes."""
    rows = possibly_repeated_rows(hashes ^ (groups.astype(np.uint64) * _SPREAD))
    doubtful = pl.DataFrame({"text": texts.gather(rows), "group": groups[rows]})
    first = np.ones(len(texts), np.bool_)
    first[rows] = doubtful.select(pl.struct(pl.all()).is_first_distinct()).to_series().to_numpy()
    return first


def possibly_repeated_rows(hashes: NDArray[np.uint64]) -> NDArray[np.int64]:
    """The rows, ascending, of all hashes that come more than once, and of very few others.

    Hashes carry their row in their lowest bits, so that they are sorted alone, in a quarter of the time that
    sorting places by hashes takes; those that are alike but for these bits are found.
    """
    low = np.uint64((1 << len(hashes).bit_length()) - 1)
    ordered = np.sort((hashes & ~low) | np.arange(len(hashes), dtype=np.uint64))
    alike = (ordered[1:] ^ ordered[:-1]) <= low
    found = np.append(alike, False)
    found[1:] |= alike
    return np.sort((ordered[found[: len(ordered)]] & low).astype(np.int64))


def map_categories(column: pl.Series, make: Callable[[list[str]], ArrayLike]) -> NDArray[np.uint64]:
    """One number a row, which `make` gives to the text of its category."""
    physical = column.to_physical().to_numpy()
    a_row = np.full(int(physical.max(initial=0)) + 1, -1)
    a_row[physical] = np.arange(len(physical))
    seen = np.flatnonzero(a_row >= 0)
    numbers = np.zeros(len(a_row), np.uint64)
    numbers[seen] = make(column.gather(a_row[seen]).cast(pl.String).to_list())
    per_row: NDArray[np.uint64] = numbers[physical]
    return per_row


def append_texts(texts: pl.Series, writer: TextsWriter) -> None:
    """Append a column to the files of an `arrays.Texts`."""
    writer.append(texts.str.join("").cast(pl.Binary).item(), texts.str.len_bytes().to_numpy())


def _untidy(names: pl.Series) -> pl.Series:
    """True where a name holds any blank but single inner spaces."""
    return names.str.contains(r"^ | $|  |[^\S ]|[\x00-\x1f\x7f-\x9f]")


def _mend(
    fast: pl.Series, original: pl.Series, special: pl.Series, slow: Callable[..., str | None]
) -> pl.Series:
    """Return `fast` with `slow(original)` in the `special` rows."""
    if not special.any():
        return fast
    mended = [slow(text) for text in original.filter(special)]
    # `scatter` writes in place, and `fast` may be the caller's own column.
    return fast.clone().scatter(special.arg_true(), pl.Series(mended, dtype=pl.String))
