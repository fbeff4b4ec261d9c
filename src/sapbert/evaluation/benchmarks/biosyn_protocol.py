"""Build an evaluation set from a raw corpus and a dictionary, by BioSyn's protocol.

What it does to a mention: short forms that its document defines are written out, one that names several
concepts is split, and everything is lowercase with punctuation as spaces; names of the dictionary likewise. A
mention with an id that the dictionary has not is dropped, as the papers do, and counted. The enlarged
dictionary has the training and development mentions as further names.

BioSyn calls programs of others for abbreviations (Ab3P) and a list of misspellings; here are the linker's own
rules, so that the protocol runs anywhere. Where they differ is told in `docs/evaluation.md`.
"""

from __future__ import annotations

import re
import string
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import polars as pl

from sapbert.artifacts import Manifest, create
from sapbert.errors import ConfigError, FormatError
from sapbert.evaluation.benchmarks.corpora import Annotation, Document, read_pubtator, split_from_name
from sapbert.evaluation.benchmarks.dataset import Dictionary, make_dictionary, mention_table
from sapbert.evaluation.benchmarks.loader import KIND
from sapbert.evaluation.benchmarks.raw_dictionary import bare_ids, read_raw_dictionary
from sapbert.linking.preprocess.abbreviations import expand, find_abbreviations
from sapbert.linking.preprocess.composites import split_composite
from sapbert.text import tidy
from sapbert.vocab.input_files import InputFile, InputReader, Release

_PUNCTUATION = str.maketrans(dict.fromkeys(string.punctuation, " "))
_SPLITS = ("train", "dev", "test")
COLUMNS = ("raw_mention", "mention", "concept_ids", "doc_id", "start", "end", "type", "context")


@dataclass(frozen=True, slots=True)
class CorpusSettings:
    """What a benchmark takes of a corpus."""

    types: tuple[str, ...] = ()
    """Types of mentions that count; none: all."""
    split_composites: bool = False
    """Split by rule those that the annotators did not."""


CORPORA = {
    "ncbi-disease": CorpusSettings(split_composites=True),
    "bc5cdr-disease": CorpusSettings(types=("Disease",)),
    "bc5cdr-chemical": CorpusSettings(types=("Chemical",)),
}


def build_benchmark(
    name: str, raw: Iterable[Path], dictionary: Path, target: Path, *, overwrite: bool = False
) -> Manifest:
    """Write the benchmark `name` as a plain folder, which `open_evaluation_set` opens.

    `raw` are PubTator files, or folders of them, whose names tell their split; `dictionary` is
    any that `raw_dictionary` reads.
    """
    if name not in CORPORA:
        raise ConfigError(f"no benchmark {name!r} is known; there are {', '.join(CORPORA)}")
    inputs = InputReader()
    sources = _sources(raw)
    alone, concepts = _read_dictionary(dictionary, inputs)
    counts = {"concepts": concepts, "dictionary": len(alone)}
    known = set(alone.ids)
    tables: dict[str, pl.DataFrame] = {}
    for split, source in sources.items():
        rows = [row for document in _documents(source, inputs) for row in _mentions(document, CORPORA[name])]
        kept = [row for row in rows if row["concept_ids"] and set(_ids(row["concept_ids"])) <= known]
        tables[split] = pl.DataFrame(kept, schema=dict.fromkeys(COLUMNS, pl.String))
        counts |= {split: len(kept), f"{split}: dropped for their ids": len(rows) - len(kept)}
    if not any(table.height for table in tables.values()):
        raise ConfigError(
            f"{dictionary} has none of the ids of these mentions; is it the dictionary of {name}?"
        )
    enlarged = _enlarged(alone, [tables["train"], tables["dev"]])
    counts["test_dictionary"] = len(enlarged)
    with create(target, overwrite=overwrite) as draft:
        for split, table in tables.items():
            table.write_csv(draft.path / f"{split}.tsv", separator="\t", quote_style="never")
        for stem, found in (("dictionary", alone), ("test_dictionary", enlarged)):
            lines = found.table.select(concept_id=pl.col("ids").list.join("|"), name="name")
            lines.write_csv(draft.path / f"{stem}.tsv", separator="\t", quote_style="never")
        settings = {"benchmark": name, **asdict(CORPORA[name])}
        return draft.seal(KIND, settings=settings, inputs=inputs.checksums, counts=counts)


def normalise(text: str) -> str:
    """Return a name as the protocol compares it: lowercase, punctuation as spaces."""
    return tidy(text.lower().translate(_PUNCTUATION))


def _sources(raw: Iterable[Path]) -> dict[str, InputFile]:
    """Find the corpus of each split by its name."""
    found: dict[str, InputFile] = {}
    for member in (member for path in raw for member in Release(path).members):
        split = split_from_name(member.plain_name)
        if split is None or split in found:
            problem = "says no split" if split is None else f"is a second {split} split"
            raise FormatError(
                member.name, None, f"the file name {problem}", hint="train, dev or test is wanted"
            )
        found[split] = InputFile(member.plain_name, (member,))
    missing = [split for split in _SPLITS if split not in found]
    if missing:
        raise ConfigError(f"no corpus of the {missing[0]} split was given")
    return {split: found[split] for split in _SPLITS}


def _documents(source: InputFile, inputs: InputReader) -> Iterator[Document]:
    """Yield each document once: NCBI's training corpus has one twice."""
    seen: set[str] = set()
    for document in read_pubtator(source, inputs):
        if document.id not in seen:
            seen.add(document.id)
            yield document


def _mentions(document: Document, corpus: CorpusSettings) -> Iterator[dict[str, str]]:
    # Title and abstract apart, as BioSyn does: a title ends without a full stop at times.
    abbreviations = find_abbreviations(document.abstract) | find_abbreviations(document.title)
    for found in document.annotations:
        if corpus.types and found.type not in corpus.types:
            continue
        ids = bare_ids(found.ids)
        yield {
            "raw_mention": tidy(found.text),
            "mention": "|".join(normalise(part) for part in _parts(found, ids, abbreviations, corpus)),
            "concept_ids": "" if ids == "-1" else ids,
            "doc_id": document.id,
            "start": str(found.start),
            "end": str(found.end),
            "type": found.type,
            "context": document.sentence_of(found),
        }


def _parts(
    found: Annotation, ids: str, abbreviations: Mapping[str, str], corpus: CorpusSettings
) -> list[str]:
    """What a mention names: as the annotators split it, or as many as it has ids, or one."""
    if found.parts:
        return [expand(part, abbreviations) for part in found.parts.split("|")]
    whole = expand(found.text, abbreviations)
    parts = split_composite(whole) if corpus.split_composites else [whole]
    return parts if len(parts) == len(_ids(ids)) else [whole]


def _ids(joined: str) -> list[str]:
    return re.split(r"[|+]", joined)


def _read_dictionary(path: Path, inputs: InputReader) -> tuple[Dictionary, int]:
    """Read and process the dictionary; return how many concepts it has too."""
    rows, concepts = read_raw_dictionary(path, inputs)
    processed = pl.Series([normalise(name) for name in rows["name"]], dtype=pl.String)
    found = make_dictionary(processed, rows["ids"])
    return found, found.concepts if concepts is None else concepts


def _enlarged(alone: Dictionary, tables: list[pl.DataFrame]) -> Dictionary:
    labelled = pl.concat(tables)
    columns = {"mention": labelled["mention"], "ids": labelled["concept_ids"]}
    return alone.with_mentions(mention_table(columns, composite=True))
