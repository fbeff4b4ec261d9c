"""Open an evaluation set in any supported format.

The format is detected from the file names in the folder. The splits stay separate: nothing is selected with
the test split.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from sapbert.artifacts import MANIFEST, fingerprint_of, load_manifest
from sapbert.errors import ConfigError, FormatError
from sapbert.evaluation.benchmarks import corpora, mention_lists
from sapbert.evaluation.benchmarks.dataset import Dictionary
from sapbert.vocab.input_files import InputReader, Release

KIND = "benchmark"
"""Artifact kind written by `sapbert benchmark`, a folder in the plain format."""


@dataclass(frozen=True)
class EvaluationSet:
    """Mentions with gold ids, and the dictionaries to search."""

    name: str
    splits: Mapping[str, pl.DataFrame]
    """`train`, `dev` and `test`, as far as they exist; columns are `dataset.MENTIONS`."""
    dictionary: Dictionary | None
    """The names of the vocabulary."""
    test_dictionary: Dictionary | None
    """The enlarged dictionary, which adds training and development mentions; None if the set has none."""
    inputs: Mapping[str, Mapping[str, object]]
    """Name of each file read → its size and checksum."""

    @property
    def fingerprint(self) -> str:
        """Fingerprint of the contents of all files read."""
        return fingerprint_of({name: str(record["xxh3"]) for name, record in self.inputs.items()})

    @property
    def dictionaries(self) -> dict[str, Dictionary]:
        """The dictionaries that exist and are not empty, by name."""
        both = {"dictionary": self.dictionary, "test_dictionary": self.test_dictionary}
        return {name: names for name, names in both.items() if names is not None and len(names)}

    def split(self, name: str) -> pl.DataFrame:
        """Return the mentions of a split."""
        if name not in self.splits:
            raise ConfigError(f"{self.name} has no {name} split, only {', '.join(self.splits)}")
        return self.splits[name]


_FORMATS: tuple[
    tuple[str, Callable[[Release, InputReader, str | None], mention_lists.BenchmarkContents]], ...
] = (
    (r"(train|dev|test)\.tsv", mention_lists.read_plain),
    (r".*\.concept", mention_lists.read_biosyn),
    (r".*fold-\d+\.(train|validation|test)\.txt", mention_lists.read_folds),
    (r"(train|dev|test)\.csv", mention_lists.read_cometa),
    (r".*_query\.txt", mention_lists.read_queries),
    (r"corpus_pubtator.*\.txt", corpora.read_medmentions),
    (corpora.PUBTATOR, corpora.read_pubtator_files),
    (r".*\.jsonl?", corpora.read_bigbio),
)
"""Pattern of file names → reader. The first pattern that matches a file decides the format."""


def open_evaluation_set(
    path: Path, *, dictionary: Path | None = None, prefix: str | None = None
) -> EvaluationSet:
    """Open the benchmark in the folder or file `path`.

    `dictionary` is for benchmarks without one: a vocabulary, a TSV with `concept_id` and `name`, or a file
    with `id||name` lines. `prefix` is added to ids without a prefix, also in the dictionary.
    """
    if (path / MANIFEST).is_file():
        load_manifest(path, kind=KIND)
    release, inputs = Release(path), InputReader()
    reader = next((read for pattern, read in _FORMATS if release.find(pattern)), None)
    if reader is None:
        raise FormatError(
            path, None, "contains no benchmark in a known format", hint="see docs/how-to/evaluate.md"
        )
    contents = reader(release, inputs, prefix)
    if dictionary is not None:
        names = mention_lists.read_dictionary(dictionary, inputs, prefix)
        contents = mention_lists.BenchmarkContents(contents.splits, names)
    if not any(split.height for split in contents.splits.values()):
        raise FormatError(path, None, "contains no mentions")
    name = path.resolve().name.removesuffix(".gz")
    return EvaluationSet(
        name, contents.splits, contents.dictionary, contents.test_dictionary, inputs.checksums
    )
