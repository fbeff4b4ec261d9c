"""Read and write the pairs file of the SapBERT reference code: one `id||name||name` per line.

Written for other SapBERT implementations, and read so that pairs made elsewhere can be trained on. The format
cannot represent a name that contains `||`, or a `|` next to a separator; such pairs are left out and counted.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl

from sapbert.artifacts import create, create_file
from sapbert.errors import FormatError, SapbertError
from sapbert.pairs.artifact import KIND, Pairs
from sapbert.pairs.draw import Names, PairsWriter
from sapbert.vocab.input_files import InputFile, InputReader
from sapbert.vocab.tables import find_table, text_lines
from sapbert.vocab.text_columns import fold_names, to_curies

_PAIRS_PER_BLOCK = 500_000


def write_reference(pairs: Pairs, target: Path, *, overwrite: bool = False) -> int:
    """Write `pairs` as text to `target`, atomically; return the number of pairs left out."""
    left_out = 0
    with create_file(target, overwrite=overwrite) as partial, open(partial, "wb") as file:
        for start in range(0, len(pairs), _PAIRS_PER_BLOCK):
            lines = _lines(pairs, start, min(start + _PAIRS_PER_BLOCK, len(pairs)))
            # In three consecutive bars it is ambiguous which two are the separator.
            clear = ~lines.str.contains("|||", literal=True)
            whole = lines.filter(clear & (lines.str.count_matches("||", literal=True) == 2))
            left_out += len(lines) - len(whole)
            file.write("".join(f"{line}\n" for line in whole).encode())
    return left_out


def read_reference(
    path: Path, target: Path, inputs: InputReader, *, prefix: str | None = None, overwrite: bool = False
) -> Pairs:
    """Convert the text file at `path` to a pairs artifact at `target` and open it.

    Ids without a prefix get `prefix` (`umls` for files of the reference code).
    """
    source = find_table(path)
    rows = _parse(source, inputs, prefix)
    long = pl.concat([rows.select("concept_id", text="left"), rows.select("concept_id", text="right")])
    names = long.unique().sort("concept_id", "text").with_row_index("row")
    numbered = rows.join(names.rename({"text": "left", "row": "a"}), on=["concept_id", "left"]).join(
        names.rename({"text": "right", "row": "b"}), on=["concept_id", "right"]
    )
    numbers = numbered.select(left=pl.min_horizontal("a", "b"), right=pl.max_horizontal("a", "b"))
    with create(target, overwrite=overwrite) as draft:
        with PairsWriter(draft) as writer:
            content = Names.of(names["concept_id"], names["text"])
            writer.add(content, numbers.unique().sort("left", "right").to_numpy().astype(np.int64))
        counts = writer.counts()
        if inputs.skipped_rows:
            counts["bad rows skipped"] = inputs.skipped_rows
        draft.seal(KIND, settings={"prefix": prefix}, inputs=inputs.checksums, counts=counts)
    return Pairs.open(target, verify=False)


def _lines(pairs: Pairs, start: int, stop: int) -> pl.Series:
    rows = pairs.pairs[start:stop]
    # Pairs are in the order of their concepts, so their names are close together.
    first, last = int(rows.min()), int(rows.max()) + 1
    texts = pl.Series(pairs.names.span(first, last))
    concepts = pairs.concepts[rows[:, 0]]
    low, high = int(concepts.min()), int(concepts.max()) + 1
    ids = pl.Series(pairs.concept_ids.span(low, high))
    columns = [ids.gather(concepts - low), *(texts.gather(rows[:, side] - first) for side in (0, 1))]
    return pl.select(pl.concat_str(columns, separator="||")).to_series()


def _parse(source: InputFile, inputs: InputReader, prefix: str | None) -> pl.DataFrame:
    first = 1
    frames = []
    for block in inputs.blocks(source):
        lines = text_lines(block, first, source, inputs)
        first += block.count(b"\n")
        text = lines["text"].str.strip_chars_end("\r")
        fields = text.str.split_exact("||", 2).struct.unnest().rename(_FIELD_NAMES)
        frame = fields.with_columns(
            concept_id=to_curies(fields["id"].fill_null(""), prefix=prefix),
            left=fold_names(fields["left"].fill_null("")),
            right=fold_names(fields["right"].fill_null("")),
            count=text.str.count_matches("||", literal=True),
        )
        shaped = (frame["count"] == 2) & (frame["left"] != "") & (frame["right"] != "")
        whole = shaped & frame["concept_id"].is_not_null()
        for row in (~whole).arg_true():
            inputs.reject_row(_bad_line(source.name, lines["line"][row], text[row], shaped=shaped[row]))
        frames.append(
            frame.filter(whole, pl.col("left") != pl.col("right")).select("concept_id", "left", "right")
        )
    rows = pl.concat(frames)
    if rows.is_empty():
        raise SapbertError(f"{source.name}: no pair of two different names")
    return rows


_FIELD_NAMES = {"field_0": "id", "field_1": "left", "field_2": "right"}


def _bad_line(name: str, line: int, text: str, *, shaped: bool) -> FormatError:
    if shaped:
        return FormatError(
            name, line, f"{text.split('||')[0]!r} is not an id with a prefix", hint="give --prefix"
        )
    return FormatError(name, line, f"expected id||name||name, found {text[:80]!r}")
