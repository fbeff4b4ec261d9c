"""Build an evaluation set from a raw corpus and a dictionary, by BioSyn's protocol.

Abbreviations that are defined in the document are expanded, composite mentions are split, and mentions and
names are lowercased with punctuation replaced by spaces. Mentions with an id that is not in the dictionary
are dropped and counted, as in the papers. The enlarged dictionary has the training and development mentions
as additional names.

BioSyn uses external tools for abbreviations (Ab3P) and a list of misspellings. This module uses the rules of
the linker, so that it runs anywhere. `docs/explain/evaluation.md` describes the differences.
"""

from __future__ import annotations

import re
import string
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import polars as pl

from sapbert.annotation.input.pubtator import Annotation, Document, read_pubtator
from sapbert.artifacts import Manifest, create
from sapbert.errors import ConfigError, FormatError
from sapbert.evaluation.benchmarks.corpora import split_from_name
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
    """Which mentions of a corpus a benchmark uses, and how."""

    types: tuple[str, ...] = ()
    """Types of mentions to use; empty for all."""
    split_composites: bool = False
    """Split composite mentions that the annotators did not split."""


CORPORA = {
    "ncbi-disease": CorpusSettings(split_composites=True),
    "bc5cdr-disease": CorpusSettings(types=("Disease",)),
    "bc5cdr-chemical": CorpusSettings(types=("Chemical",)),
}


def build_benchmark(
    name: str, raw: Iterable[Path], dictionary: Path, target: Path, *, overwrite: bool = False
) -> Manifest:
    """Write the benchmark `name` in the plain format, which `open_evaluation_set` opens.

    `raw` are PubTator files, or folders of them, with the split in their names. `dictionary` is in any format
    that `raw_dictionary` reads.
    """
    if name not in CORPORA:
        raise ConfigError(f"unknown benchmark {name!r}; choose from {', '.join(CORPORA)}")
    inputs = InputReader()
    sources = _sources(raw)
    names, concepts = _read_dictionary(dictionary, inputs)
    counts = {"concepts": concepts, "dictionary": len(names)}
    known = set(names.ids)
    tables: dict[str, pl.DataFrame] = {}
    for split, source in sources.items():
        rows = [row for document in _documents(source, inputs) for row in _mentions(document, CORPORA[name])]
        kept = [row for row in rows if row["concept_ids"] and set(_ids(row["concept_ids"])) <= known]
        tables[split] = pl.DataFrame(kept, schema=dict.fromkeys(COLUMNS, pl.String))
        counts |= {split: len(kept), f"{split}: dropped (id not in dictionary)": len(rows) - len(kept)}
    if not any(table.height for table in tables.values()):
        raise ConfigError(
            f"{dictionary} contains none of the ids of these mentions; is it the dictionary of {name}?"
        )
    enlarged = _enlarge(names, [tables["train"], tables["dev"]])
    counts["test_dictionary"] = len(enlarged)
    with create(target, overwrite=overwrite) as draft:
        for split, table in tables.items():
            table.write_csv(draft.path / f"{split}.tsv", separator="\t", quote_style="never")
        for stem, written in (("dictionary", names), ("test_dictionary", enlarged)):
            lines = written.table.select(concept_id=pl.col("ids").list.join("|"), name="name")
            lines.write_csv(draft.path / f"{stem}.tsv", separator="\t", quote_style="never")
        settings = {"benchmark": name, **asdict(CORPORA[name])}
        return draft.seal(KIND, settings=settings, inputs=inputs.checksums, counts=counts)


def normalise(text: str) -> str:
    """Return a name as the protocol compares it: lowercase, with punctuation replaced by spaces."""
    return tidy(text.lower().translate(_PUNCTUATION))


def _sources(raw: Iterable[Path]) -> dict[str, InputFile]:
    """Find the corpus of each split by its file name."""
    sources: dict[str, InputFile] = {}
    for member in (member for path in raw for member in Release(path).members):
        split = split_from_name(member.plain_name)
        if split is None or split in sources:
            problem = "no split in the file name" if split is None else f"a second file for the {split} split"
            hint = "expected one file each with train, dev and test in its name"
            raise FormatError(member.name, None, problem, hint=hint)
        sources[split] = InputFile(member.plain_name, (member,))
    missing = [split for split in _SPLITS if split not in sources]
    if missing:
        raise ConfigError(f"no file for the {missing[0]} split; its name must contain {missing[0]!r}")
    return {split: sources[split] for split in _SPLITS}


def _documents(source: InputFile, inputs: InputReader) -> Iterator[Document]:
    """Yield each document once; the training corpus of NCBI contains one twice."""
    seen: set[str] = set()
    for document in read_pubtator(source, inputs):
        if document.id not in seen:
            seen.add(document.id)
            yield document


def _mentions(document: Document, corpus: CorpusSettings) -> Iterator[dict[str, str]]:
    # Title and abstract separately, as in BioSyn, because some titles end without a full stop.
    abbreviations = find_abbreviations(document.abstract) | find_abbreviations(document.title)
    for annotation in document.annotations:
        if corpus.types and annotation.type not in corpus.types:
            continue
        ids = bare_ids(annotation.ids)
        yield {
            "raw_mention": tidy(annotation.text),
            "mention": "|".join(normalise(part) for part in _parts(annotation, ids, abbreviations, corpus)),
            "concept_ids": "" if ids == "-1" else ids,
            "doc_id": document.id,
            "start": str(annotation.start),
            "end": str(annotation.end),
            "type": annotation.type,
            "context": document.sentence_of(annotation),
        }


def _parts(
    annotation: Annotation, ids: str, abbreviations: Mapping[str, str], corpus: CorpusSettings
) -> list[str]:
    """The parts of a mention: as the annotators split it, else split by rule if it gives one part per id."""
    if annotation.parts:
        return [expand(part, abbreviations) for part in annotation.parts.split("|")]
    whole = expand(annotation.text, abbreviations)
    parts = split_composite(whole) if corpus.split_composites else [whole]
    return parts if len(parts) == len(_ids(ids)) else [whole]


def _ids(joined: str) -> list[str]:
    return re.split(r"[|+]", joined)


def _read_dictionary(path: Path, inputs: InputReader) -> tuple[Dictionary, int]:
    """Return the dictionary with normalised names, and its number of concepts."""
    rows, concepts = read_raw_dictionary(path, inputs)
    normalised = pl.Series([normalise(name) for name in rows["name"]], dtype=pl.String)
    dictionary = make_dictionary(normalised, rows["ids"])
    return dictionary, dictionary.concepts if concepts is None else concepts


def _enlarge(dictionary: Dictionary, tables: list[pl.DataFrame]) -> Dictionary:
    labelled = pl.concat(tables)
    columns = {"mention": labelled["mention"], "ids": labelled["concept_ids"]}
    return dictionary.with_mentions(mention_table(columns, composite=True))
