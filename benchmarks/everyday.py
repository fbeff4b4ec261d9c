"""Accuracy of a linker on everyday mentions: abbreviations, brands, misspellings, lay words, other languages.

    python benchmarks/everyday.py                    # development split, bundled index
    python benchmarks/everyday.py --split test       # once per release
    python benchmarks/everyday.py --index FOLDER --errors

`benchmarks/everyday/README.md` describes the mentions. A mention is right at k if one of the first k concepts
is one of its concepts. The last column is Acc@1 over the mentions that are neither a name of the lexicon
`data/everyday-names.tsv` nor found by an exact match: what the search itself achieves.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import polars as pl

from results import write_results
from sapbert.linking.candidate import Candidate
from sapbert.linking.linker import Linker

ROOT = Path(__file__).parents[1]
MENTIONS = ROOT / "benchmarks" / "everyday"
LEXICON = ROOT / "data" / "everyday-names.tsv"
DEPTH = 5


class Answer(NamedTuple):
    """The candidates of one mention, and where the first right one is."""

    mention: str
    kind: str
    names: str
    candidates: Sequence[Candidate]
    rank: int | None
    is_unseen: bool


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--index", default="default", help="As `sapbert link` takes it.")
    parser.add_argument("--split", choices=("dev", "test"), default="dev")
    parser.add_argument(
        "--errors", action="store_true", help="Print the mentions whose first answer is wrong."
    )
    options = parser.parse_args()
    linker = Linker.open(options.index)
    answers = link(linker, options.split)
    figures = {"fingerprint": linker.fingerprint, "kinds": accuracy_by_kind(answers)}
    print_table(figures["kinds"])
    if options.errors:
        print_errors(answers)
    write_results(f"everyday_{options.split}", figures, ("numpy",))


def read_mentions(split: str) -> pl.DataFrame:
    return pl.read_csv(MENTIONS / f"{split}.tsv", separator="\t", quote_char=None, infer_schema=False)


def link(linker: Linker, split: str) -> list[Answer]:
    lexicon = pl.read_csv(LEXICON, separator="\t", quote_char=None, infer_schema=False)
    known = set(lexicon["variant"].str.to_lowercase())
    table = read_mentions(split)
    candidates = linker.link(table["mention"].to_list(), k=DEPTH)
    answers = []
    for row, found in zip(table.iter_rows(named=True), candidates, strict=True):
        right = set(row["concept_ids"].split("|"))
        ranks = (rank for rank, candidate in enumerate(found, 1) if candidate.concept_id in right)
        exact = bool(found) and found[0].matched_by == "exact"
        is_unseen = not exact and row["mention"].lower() not in known
        kind = row["kind"] if row["lang"] == "en" else f"language {row['lang']}"
        answers.append(Answer(row["mention"], kind, row["names"], found, next(ranks, None), is_unseen))
    return answers


def accuracy_by_kind(answers: Sequence[Answer]) -> dict[str, dict[str, float]]:
    kinds = {answer.kind: [other for other in answers if other.kind == answer.kind] for answer in answers}
    kinds["languages"] = [answer for answer in answers if answer.kind.startswith("language ")]
    kinds["all"] = list(answers)
    return {kind: accuracy(of_kind) for kind, of_kind in kinds.items()}


def accuracy(answers: Sequence[Answer]) -> dict[str, float]:
    unseen = [answer for answer in answers if answer.is_unseen]
    return {
        "mentions": len(answers),
        "acc@1": percent(sum(answer.rank == 1 for answer in answers), len(answers)),
        "acc@5": percent(sum(answer.rank is not None for answer in answers), len(answers)),
        "unseen": len(unseen),
        "unseen acc@1": percent(sum(answer.rank == 1 for answer in unseen), len(unseen)),
    }


def percent(part: int, whole: int) -> float:
    return round(100 * part / whole, 1) if whole else 0.0


def print_table(kinds: dict[str, dict[str, float]]) -> None:
    columns = ("mentions", "acc@1", "acc@5", "unseen", "unseen acc@1")
    print(f"{'kind':14}", *(f"{column:>12}" for column in columns))
    for kind, figures in kinds.items():
        print(f"{kind:14}", *(f"{figures[column]:12g}" for column in columns))


def print_errors(answers: Sequence[Answer]) -> None:
    for answer in answers:
        if answer.rank != 1:
            first = answer.candidates[0].preferred_name if answer.candidates else "NIL"
            print(answer.kind, answer.mention, answer.names, f"-> {first}", answer.rank or "-", sep="\t")


if __name__ == "__main__":
    main()
