"""Write the inputs of `compare_behaviour.py`: real mentions, and benchmarks that run in seconds."""

from __future__ import annotations

import csv
import gzip
import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import polars as pl

ROOT = Path(__file__).parents[1]
MENTIONS = {"ncbi-disease/test": 700, "bc5cdr-disease/test": 700, "askapatient/fold0/test": 600}
SMALL_BENCHMARKS = ("ncbi-disease", "bc5cdr-disease")
SAMPLE = 20
"""One mention in this many is in the sample, which is linked in every format."""


class Mention(NamedTuple):
    """A labelled mention of a benchmark."""

    set: str
    mention: str
    rank: str
    """The gold concept. Linking adds a column of the same name, so this tests that input columns are kept."""
    document: str
    is_abbreviation: bool


def prepare(folder: Path, data: Path | None) -> None:
    """Write the files of mentions, and benchmarks small enough to encode in seconds."""
    mentions = list(real_mentions(data) if data else example_mentions())
    frame = pl.DataFrame([mention[:3] for mention in mentions], schema=Mention._fields[:3], orient="row")
    frame.write_csv(folder / "mentions.csv")
    sample = frame.gather_every(SAMPLE) if data else frame
    sample.write_csv(folder / "sample.csv")
    sample.write_csv(folder / "sample.tsv", separator="\t")
    sample.write_parquet(folder / "sample.parquet")
    sample.write_ndjson(folder / "sample.jsonl")
    (folder / "sample.txt").write_text("\n".join(sample["mention"]) + "\n", encoding="utf-8")
    if data:
        abbreviated = [mention for mention in mentions if mention.is_abbreviation][: len(sample)]
        texts = documents(data / "raw" / "NCBItestset_corpus.txt.gz")
        rows = [(mention.mention, texts.get(mention.document, "")) for mention in abbreviated]
        pl.DataFrame(rows, schema=["mention", "text"], orient="row").write_csv(folder / "documents.csv")
        for name in SMALL_BENCHMARKS:
            cut_benchmark(data / "benchmarks" / name, folder / name)


def example_mentions() -> Iterator[Mention]:
    with open(ROOT / "examples" / "patients.csv", encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            yield Mention("patients", row["diagnosis"], "", "", is_abbreviation=False)


def real_mentions(data: Path) -> Iterator[Mention]:
    for name, count in MENTIONS.items():
        for row in islice(read_tsv(data / "benchmarks" / f"{name}.tsv.gz"), count):
            short = row.get("abbr_expanded") == "1"
            yield Mention(name, row["raw_mention"], row["concept_ids"], row.get("doc_id", ""), short)


def documents(path: Path) -> dict[str, str]:
    """Title and abstract of each document of a PubTator file."""
    texts: dict[str, str] = {}
    with gzip.open(path, "rt", encoding="utf-8") as file:
        for number, _, text in re.findall(r"^(\d+)\|([ta])\|(.*)$", file.read(), re.MULTILINE):
            texts[number] = f"{texts.get(number, '')} {text}".strip()
    return texts


def cut_benchmark(source: Path, out: Path, *, mentions: int = 200, one_in: int = 40) -> None:
    """Keep the first mentions, all names of their concepts, and some other names as distractors."""
    out.mkdir()
    kept = list(islice(read_tsv(source / "test.tsv.gz"), mentions))
    write_tsv(out / "test.tsv", kept)
    gold = {part for row in kept for part in re.split(r"[|+]", row["concept_ids"])}
    for name in ("dictionary", "test_dictionary"):
        rows = enumerate(read_tsv(source / f"{name}.tsv.gz"))
        names = [row for number, row in rows
                 if number % one_in == 0 or gold & set(re.split(r"[|+]", row["concept_id"]))]  # fmt: skip
        write_tsv(out / f"{name}.tsv", names)


def read_tsv(path: Path) -> Iterator[dict[str, str]]:
    with gzip.open(path, "rt", encoding="utf-8", newline="") as file:
        yield from csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)


def write_tsv(path: Path, rows: list[dict[str, str]]) -> None:
    lines = ["\t".join(rows[0]), *("\t".join(row.values()) for row in rows)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
