"""Open an evaluation set, whatever way it is written in.

A benchmark lies in a folder that betrays its format by the names of its files, so nobody has to say which it
is. The splits are kept apart: the test split is never needed to choose anything.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from sapbert.artifacts import MANIFEST, fingerprint_of, load_manifest
from sapbert.errors import ConfigError, FormatError
from sapbert.evaluation.benchmarks import corpora
from sapbert.evaluation.benchmarks import mention_lists as formats
from sapbert.evaluation.benchmarks.dataset import Dictionary
from sapbert.vocab.input_files import InputReader, Release

KIND = "benchmark"
"""Kind of the artifact that `sapbert benchmark` writes, which is a plain folder."""


@dataclass(frozen=True)
class EvaluationSet:
    """Mentions whose right links are known, and the names to find."""

    name: str
    splits: Mapping[str, pl.DataFrame]
    """`train`, `dev` and `test`, those that there are; columns are `mentions.MENTIONS`."""
    dictionary: Dictionary | None
    """The names of the vocabulary alone."""
    test_dictionary: Dictionary | None
    """Those and the training and development mentions, where the benchmark's protocol has such a thing."""
    inputs: Mapping[str, Mapping[str, object]]
    """Name of each file read → its size and checksum."""

    @property
    def fingerprint(self) -> str:
        """Equal for equal files."""
        return fingerprint_of({name: str(record["xxh3"]) for name, record in self.inputs.items()})

    @property
    def dictionaries(self) -> dict[str, Dictionary]:
        """What there is of the two, by name."""
        both = {"dictionary": self.dictionary, "test_dictionary": self.test_dictionary}
        return {name: found for name, found in both.items() if found is not None and len(found)}

    def split(self, name: str) -> pl.DataFrame:
        """Return the mentions of a split."""
        if name not in self.splits:
            raise ConfigError(f"{self.name} has no {name} split, only {', '.join(self.splits)}")
        return self.splits[name]


_FORMATS: tuple[tuple[str, Callable[[Release, InputReader, str | None], formats.BenchmarkContents]], ...] = (
    (r"(train|dev|test)\.tsv", formats.read_plain),
    (r".*\.concept", formats.read_biosyn),
    (r".*fold-\d+\.(train|validation|test)\.txt", formats.read_folds),
    (r"(train|dev|test)\.csv", formats.read_cometa),
    (r".*_query\.txt", formats.read_queries),
    (r"corpus_pubtator.*\.txt", corpora.read_medmentions),
    (corpora.PUBTATOR, corpora.read_pubtator_files),
    (r".*\.jsonl?", corpora.read_bigbio),
)
"""File name that only one format has → its reader; the first that is found counts."""


def open_evaluation_set(
    path: Path, *, dictionary: Path | None = None, prefix: str | None = None
) -> EvaluationSet:
    """Open the benchmark in the folder `path`, or in the one file `path`.

    `dictionary` is for benchmarks that come without one: a vocabulary, a TSV with `concept_id` and `name`, or
    a file of `id||name` lines. `prefix` is for ids that come without one, here as there.
    """
    if (path / MANIFEST).is_file():
        load_manifest(path, kind=KIND)
    release, inputs = Release(path), InputReader()
    reader = next((read for pattern, read in _FORMATS if release.find(pattern)), None)
    if reader is None:
        raise FormatError(path, None, "holds no benchmark that is known here", hint="see docs/evaluation.md")
    contents = reader(release, inputs, prefix)
    if dictionary is not None:
        given = formats.read_dictionary(dictionary, inputs, prefix)
        contents = formats.BenchmarkContents(contents.splits, given)
    if not any(split.height for split in contents.splits.values()):
        raise FormatError(path, None, "no mentions in here")
    name = path.resolve().name.removesuffix(".gz")
    return EvaluationSet(
        name, contents.splits, contents.dictionary, contents.test_dictionary, inputs.checksums
    )
