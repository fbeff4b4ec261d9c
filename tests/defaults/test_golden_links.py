"""The nearest names in the bundled index are those in the golden file, up to rounding.

The flash encoder adds in one order on every machine; only the projection of its vectors may round
differently. Larger differences are errors. After the bundled files were rebuilt, write the file again:

    python -m tests.defaults.test_golden_links
"""

from __future__ import annotations

import csv
from functools import cache

import sapbert
from sapbert.text import fold
from tests.conftest import GOLDEN

FILE = GOLDEN / "links" / "bundled.tsv"
SCORE_TOLERANCE = 0.001
MAX_OTHER_FIRST = 2


def mentions() -> list[str]:
    """Return the mentions of the golden file: lay language, half of it with an error of spelling."""
    return [text for text, _, _ in golden()]


@cache
def links() -> list[tuple[str, str, float]]:
    """Return mention, nearest name and its score, as the search finds them: before any reordering."""
    texts = list(map(fold, mentions()))
    linker = sapbert.Linker.open(threads=1)
    scores, rows = linker.search.search(texts, linker.encoder.encode(texts), 1)
    names = linker.name_table.folded.take(rows[:, 0])
    return list(zip(mentions(), names, scores[:, 0].tolist(), strict=True))


def golden() -> list[tuple[str, str, float]]:
    with open(FILE, encoding="utf-8") as file:
        return [(row[0], row[1], float(row[2])) for row in csv.reader(file, delimiter="\t")]


def test_nearest_names_are_those_of_other_machines() -> None:
    other = [(ours, theirs) for ours, theirs in zip(links(), golden(), strict=True) if ours[1] != theirs[1]]
    assert len(other) <= MAX_OTHER_FIRST, other


def test_scores_are_those_of_other_machines_up_to_rounding() -> None:
    far = [
        (ours, theirs)
        for ours, theirs in zip(links(), golden(), strict=True)
        if ours[1] == theirs[1] and abs(ours[2] - theirs[2]) > SCORE_TOLERANCE
    ]
    assert far == []


if __name__ == "__main__":
    found = links()
    with open(FILE, "w", encoding="utf-8", newline="") as written:
        csv.writer(written, delimiter="\t", lineterminator="\n").writerows(
            (text, name, f"{score:.4f}") for text, name, score in found
        )
