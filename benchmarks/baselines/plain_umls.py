"""Read UMLS and draw pairs in plain Python, like the reference code.

Bugs that change the result are fixed: all tradenames are kept, and sampling is seeded. Run as
`python plain_umls.py META LANGUAGE OUT.txt REPORT.json`, where LANGUAGE is a UMLS code or `all`.
"""

from __future__ import annotations

import itertools
import json
import random
import sys
from collections import defaultdict
from pathlib import Path

Preferred = dict[tuple[str, str], tuple[tuple[int, ...], str]]


def read_ranks(meta: Path) -> dict[tuple[str, str], int]:
    with open(meta / "MRRANK.RRF", encoding="utf-8") as file:
        rows = (line.split("|") for line in file)
        return {(fields[1], fields[2]): int(fields[0]) for fields in rows}


def read_names(meta: Path, language: str) -> tuple[dict[str, list[str]], Preferred]:
    """The distinct lowercase names of each concept, and its preferred name in each language."""
    ranks = read_ranks(meta)
    seen: set[tuple[str, str]] = set()
    names: dict[str, list[str]] = defaultdict(list)
    preferred: Preferred = {}
    with open(meta / "MRCONSO.RRF", encoding="utf-8") as file:
        for line in file:
            fields = line.split("|")
            if language not in (fields[1], "all") or fields[16] != "N":
                continue
            cui, name = fields[0], fields[14]
            rank = ranks.get((fields[11], fields[12]), 0)
            score = (rank, fields[2] == "P", fields[4] == "PF", fields[6] == "Y")
            concept = (cui, fields[1])
            if concept not in preferred or score > preferred[concept][0]:
                preferred[concept] = (score, name)
            key = (cui, name.lower())
            if key not in seen:
                seen.add(key)
                names[cui].append(key[1])
    return names, preferred


def add_tradenames(meta: Path, names: dict[str, list[str]]) -> None:
    links: dict[str, set[str]] = defaultdict(set)
    with open(meta / "MRREL.RRF", encoding="utf-8") as file:
        for line in file:
            fields = line.split("|")
            if fields[7] in ("has_tradename", "tradename_of"):
                links[fields[0]].add(fields[4])
                links[fields[4]].add(fields[0])
    before = {cui: list(names[cui]) for cui in links if cui in names}
    for cui, others in links.items():
        if cui in names:
            added = itertools.chain.from_iterable(before.get(other, ()) for other in sorted(others))
            names[cui] = list(dict.fromkeys(itertools.chain(names[cui], added)))


def read_types(meta: Path) -> dict[str, list[str]]:
    types: dict[str, list[str]] = defaultdict(list)
    with open(meta / "MRSTY.RRF", encoding="utf-8") as file:
        for line in file:
            fields = line.split("|")
            types[fields[0]].append(fields[1])
    return types


def write_pairs(names: dict[str, list[str]], out: Path, *, limit: int, seed: int) -> int:
    rng = random.Random(seed)
    count = 0
    with open(out, "w", encoding="utf-8") as file:
        for cui, synonyms in names.items():
            pairs = list(itertools.combinations(synonyms, 2))
            if len(pairs) > limit:
                pairs = rng.sample(pairs, limit)
            file.writelines(f"{cui}||{left}||{right}\n" for left, right in pairs)
            count += len(pairs)
    return count


def main() -> None:
    meta, out, report = (Path(sys.argv[index]) for index in (1, 3, 4))
    names, preferred = read_names(meta, sys.argv[2])
    add_tradenames(meta, names)
    types = read_types(meta)
    pairs = write_pairs(names, out, limit=50, seed=33)
    counts = {"names": sum(map(len, names.values())), "pairs": pairs}
    report.write_text(json.dumps({**counts, "preferred": len(preferred), "typed": len(types)}))


if __name__ == "__main__":
    main()
