"""Accuracy and speed of `sapbert annotate` on BC5CDR and NCBI disease: mentions found and linked.

    python benchmarks/annotate.py ../shared/data --split dev
    python benchmarks/annotate.py ../shared/data --split test

Each corpus is annotated with the bundled index, and with a vocabulary as the corpus uses it: MEDIC for
diseases, MeSH with its supplementary concepts for chemicals. No weight was fitted to these corpora. The rules
were written while looking at the dev splits; the test splits were run once. Nested mentions are left out,
because the corpora do not annotate them. Speed is that of a second pass, in CPU seconds of one process.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import tempfile
from collections.abc import Iterator
from pathlib import Path
from time import process_time
from types import SimpleNamespace
from typing import Any, cast

from results import write_results
from sapbert.annotation.annotator import Annotator
from sapbert.annotation.input.pubtator import Document, read_pubtator
from sapbert.annotation.settings import AnnotateSettings
from sapbert.evaluation.text_corpora import evaluate_texts
from sapbert.index.lexicon.lexicon import Lexicon, write_lexicon
from sapbert.index.name_table_writer import write_name_table
from sapbert.linking.linker import Linker
from sapbert.vocab.input_files import InputReader, Release
from sapbert.vocab.readers.registry import read_vocabulary
from sapbert.vocab.vocabulary import Vocabulary

FILES = {
    "bc5cdr": {"dev": "CDR_DevelopmentSet.PubTator.txt.gz", "test": "CDR_TestSet.PubTator.txt.gz"},
    "ncbi": {"dev": "NCBIdevelopset_corpus.txt.gz", "test": "NCBItestset_corpus.txt.gz"},
}
TASKS = (
    ("bc5cdr disease", "bc5cdr", ("Disease",), "C", "medic"),
    ("bc5cdr chemical", "bc5cdr", ("Chemical",), "D", "mesh_chemicals"),
    ("ncbi disease", "ncbi", (), "C", "medic"),
)


def documents(data: Path, corpus: str, split: str) -> list[Document]:
    source = Release(data / "raw" / FILES[corpus][split]).find_all(".*")[0]
    return list(read_pubtator(source, InputReader()))


def _chemicals(data: Path) -> Iterator[tuple[str, str, str]]:
    for name in ("mesh_descriptors", "mesh_supplementary"):
        with gzip.open(data / "vocabularies" / f"{name}.tsv.gz", "rt", encoding="utf-8") as stream:
            for row in csv.DictReader(stream, delimiter="\t", quoting=csv.QUOTE_NONE):
                if "Chemicals and Drugs" in row.get("categories", "Chemicals and Drugs"):
                    yield row["concept_id"].removeprefix("MESH:"), row["name"], row["is_preferred"]


def vocabulary(name: str, data: Path, folder: Path) -> Vocabulary:
    """Read MEDIC, or the chemicals of MeSH."""
    if name == "medic":
        path = folder / "medic.txt"
        path.write_bytes(gzip.decompress((data / "raw" / "medic_06Jul2012.txt.gz").read_bytes()))
    else:
        path = folder / "chemicals.tsv"
        rows = "".join(f"mesh:{code}\t{text}\t{first}\n" for code, text, first in _chemicals(data))
        path.write_text(f"concept_id\tname\tis_preferred\n{rows}", encoding="utf-8")
    return read_vocabulary("table", path, folder / name, None, on_error="skip")


def annotator(source: Vocabulary, folder: Path, settings: AnnotateSettings) -> Annotator:
    """Return an annotator of a vocabulary, without vectors."""
    entries = folder / f"{source.path.name}.entries"
    entries.mkdir()
    table = write_name_table(source, entries)
    write_lexicon(table, entries)
    linker = cast("Linker", SimpleNamespace(name_table=table, fingerprint=""))
    return Annotator(linker, Lexicon.open(entries, names=len(table)), settings)


def speed(annotate: Annotator, texts: list[str]) -> float:
    """Return texts per CPU second."""
    annotate.annotate(texts)
    start = process_time()
    annotate.annotate(texts)
    return round(len(texts) / (process_time() - start))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("data", type=Path)
    parser.add_argument("--split", choices=("dev", "test"), default="dev")
    options = parser.parse_args()
    figures: dict[str, Any] = {"split": options.split}
    opened: dict[str, Annotator] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for label, corpus, gold_types, kind, own in TASKS:
            texts = documents(options.data, corpus, options.split)
            if own not in opened:
                settings = AnnotateSettings(nested=False, context=False)
                opened[own] = annotator(vocabulary(own, options.data, folder), folder, settings)
            bundled = Annotator.open(settings=AnnotateSettings(nested=False, context=False, types=(kind,)))
            for index, used in (("bundled", bundled), (own, opened[own])):
                result = evaluate_texts(texts, used, types=gold_types)
                figures[f"{label}, {index}"] = result.to_json()
                relaxed = result.scores["all"]["relaxed"]
                print(
                    f"{label:16} {index:15} relaxed P {relaxed.precision:.3f} R {relaxed.recall:.3f} "
                    f"F1 {relaxed.f1:.3f}"
                )
        texts = [document.text for document in documents(options.data, "bc5cdr", options.split)]
        figures["texts per CPU second"] = {
            "exact": speed(Annotator.open(settings=AnnotateSettings(context=False)), texts),
            "exact, with context": speed(Annotator.open(), texts),
        }
        print(figures["texts per CPU second"])
    write_results(f"annotate_{options.split}", figures)


if __name__ == "__main__":
    main()
