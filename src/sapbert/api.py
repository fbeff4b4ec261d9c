"""The public Python API: one function per stage. `sapbert.read` is this module's `read`, and so on.

Each function does what the command of the same stage does, takes paths or opened artifacts, and imports
what it needs when it is called.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, overload

from sapbert.defaults import DEFAULT
from sapbert.errors import needing
from sapbert.progress import Progress, no_progress

if TYPE_CHECKING:
    from sapbert.annotation.annotation import AnnotatedText
    from sapbert.annotation.annotator import Annotator
    from sapbert.annotation.settings import AnnotateSettings
    from sapbert.evaluation.compare import Comparison, System
    from sapbert.index.settings import IndexSettings
    from sapbert.linking.answer import Answer
    from sapbert.linking.linker import Linker
    from sapbert.pairs.artifact import Pairs
    from sapbert.pairs.settings import PairSettings
    from sapbert.training.settings import FlashSettings, TrainSettings
    from sapbert.vocab.readers.registry import ReaderSettings
    from sapbert.vocab.settings import MergeSettings, OnError
    from sapbert.vocab.vocabulary import Vocabulary

PathLike = str | Path


def read(
    kind: str,
    path: PathLike,
    out: PathLike,
    settings: ReaderSettings | None = None,
    *,
    on_error: OnError = "stop",
    overwrite: bool = False,
    progress: Progress = no_progress,
) -> Vocabulary:
    """Read a vocabulary from its publisher's files, write it to `out` and open it.

    `kind` is umls, rxnorm, obo, snomed, mesh, omop or table: the keys of
    `sapbert.vocab.readers.registry.READERS`. A bad row stops the reading with its file and line;
    `on_error="skip"` skips and counts it.

        >>> vocabulary = sapbert.read("table", "examples/common.tsv", "vocabulary")
        >>> vocabulary.manifest.counts["concepts"]
        73
    """
    from sapbert.vocab.readers.registry import read_vocabulary

    return read_vocabulary(
        kind, Path(path), Path(out), settings, on_error=on_error, overwrite=overwrite, progress=progress
    )


def merge(
    vocabularies: Iterable[Vocabulary | PathLike],
    out: PathLike,
    settings: MergeSettings | None = None,
    *,
    xrefs: Iterable[PathLike] = (),
    overwrite: bool = False,
    progress: Progress = no_progress,
) -> Vocabulary:
    """Merge vocabularies: concepts that cross-references declare equal become one concept.

    Each of `xrefs` is a TSV file with the columns `concept_id` and `xref`, or a vocabulary. A joined concept
    keeps its id in the first vocabulary; the other ids become aliases.

        >>> merged = sapbert.merge(["vocabulary", "other"], "merged", xrefs=["xrefs.tsv"])
        >>> merged.concept("other:1").concept_id
        'mesh:D009203'
    """
    from dataclasses import asdict

    from sapbert.vocab.input_files import InputReader
    from sapbert.vocab.merge import merge_vocabularies
    from sapbert.vocab.settings import MergeSettings
    from sapbert.vocab.vocabulary import Vocabulary
    from sapbert.vocab.writer import write_vocabulary

    opened = [_vocabulary(vocabulary) for vocabulary in vocabularies]
    settings, inputs = settings or MergeSettings(), InputReader(progress=progress)
    with write_vocabulary(Path(out), asdict(settings), inputs, overwrite=overwrite) as writer:
        merge_vocabularies(opened, [Path(path) for path in xrefs], writer, inputs, settings)
    return Vocabulary.open(out, verify=False)


def draw_pairs(
    vocabulary: Vocabulary | PathLike,
    out: PathLike,
    settings: PairSettings | None = None,
    *,
    overwrite: bool = False,
    progress: Progress = no_progress,
) -> Pairs:
    """Draw synonym pairs from a vocabulary, for training.

    >>> pairs = sapbert.draw_pairs("vocabulary", "pairs")
    >>> len(pairs)
    727
    """
    from sapbert.pairs.draw import draw_pairs
    from sapbert.pairs.settings import PairSettings

    opened = _vocabulary(vocabulary)
    return draw_pairs(opened, Path(out), settings or PairSettings(), overwrite=overwrite, progress=progress)


def train(
    pairs: Pairs | PathLike,
    base: PathLike,
    out: PathLike,
    settings: TrainSettings | None = None,
    *,
    resume: bool = False,
    overwrite: bool = False,
) -> Path:
    """Train the encoder `base` on `pairs` by self-alignment; return the model folder.

    `base` is a folder or a Hugging Face id. Uses the GPU if there is one. Needs `sapbert[train]`.

        >>> settings = sapbert.TrainSettings(epochs=1, batch_size=32)
        >>> model = sapbert.train("pairs", "path/to/encoder", "model", settings)
    """
    from sapbert.pairs.artifact import Pairs
    from sapbert.training.settings import TrainSettings

    with needing("train"):
        from sapbert.training.alignment import trainer
        from sapbert.training.distributed import local_device
    trainer.train(
        pairs if isinstance(pairs, Pairs) else Pairs.open(Path(pairs)),
        str(base),
        Path(out),
        settings or TrainSettings(),
        device=local_device(),
        resume=resume,
        overwrite=overwrite,
    )
    return Path(out)


def train_flash(
    pairs: Pairs | PathLike,
    out: PathLike,
    settings: FlashSettings | None = None,
    *,
    base: PathLike | None = None,
    teacher: PathLike | None = None,
    resume: bool = False,
    overwrite: bool = False,
    progress: Progress = no_progress,
) -> Path:
    """Train a flash encoder, a table instead of a transformer, on `pairs`; return its folder.

    Training starts from the flash encoder `base`, or from random rows. `teacher` is any encoder whose
    similarities are imitated. Uses the GPU if there is one. Needs `sapbert[train]`; the result does not.

        >>> flash = sapbert.train_flash("pairs", "flash", sapbert.FlashSettings(steps=20, dimension=16))
        >>> index = sapbert.build_index("vocabulary", "flash-index", model=flash)
    """
    from sapbert.pairs.artifact import Pairs
    from sapbert.training.settings import FlashSettings

    with needing("train"):
        from sapbert.training.distributed import local_device
        from sapbert.training.flash import trainer
        from sapbert.training.flash.teacher import open_teacher
    opened = pairs if isinstance(pairs, Pairs) else Pairs.open(Path(pairs))
    trainer.train_flash(
        opened,
        Path(out),
        settings or FlashSettings(),
        base=None if base is None else str(base),
        teacher=None if teacher is None else open_teacher(str(teacher), opened, progress=progress),
        device=local_device(),
        resume=resume,
        overwrite=overwrite,
    )
    return Path(out)


def export(model: PathLike, out: PathLike, *, overwrite: bool = False) -> Path:
    """Export an encoder to ONNX in fp32 and int8, so that it runs without torch; return its folder.

    Needs `sapbert[train]`.

        >>> encoder = sapbert.export("model", "encoder")
    """
    with needing("train"):
        from sapbert.encoder.onnx_export.export import export_model
    export_model(str(model), Path(out), overwrite=overwrite)
    return Path(out)


def build_index(
    vocabulary: Vocabulary | PathLike,
    out: PathLike,
    settings: IndexSettings | None = None,
    *,
    model: PathLike = DEFAULT,
    threads: int | None = None,
    update: PathLike | None = None,
    resume: bool = False,
    overwrite: bool = False,
    progress: Progress = no_progress,
) -> Linker:
    """Encode the names of a vocabulary into an index at `out`, and open it as a `Linker`.

    `model` is the bundled encoder (`default` or `open-mini`), a folder written by `export`, or a
    model to export first.

        >>> linker = sapbert.build_index("vocabulary", "index")
        >>> linker.link(["heart atack"])[0][0].preferred_name
        'Myocardial Infarction'
    """
    from sapbert.encoder.open import exported_folder, open_exported
    from sapbert.index.build import build_index
    from sapbert.index.settings import IndexSettings
    from sapbert.linking.linker import Linker

    settings = settings or IndexSettings()
    with exported_folder(str(model), Path(out)) as folder:
        encoder = open_exported(folder, threads=threads)
        weight = encoder.sparse_weight if settings.hybrid is not False else 0.0
        build_index(
            _vocabulary(vocabulary),
            encoder,
            Path(out),
            replace(settings, hybrid=bool(settings.hybrid or weight), sparse_weight=weight),
            update=None if update is None else Path(update),
            resume=resume,
            overwrite=overwrite,
            progress=progress,
        )
    return Linker.open(Path(out), threads=threads)


@overload
def link(mentions: str, *, index: PathLike = ..., k: int = ...) -> Answer: ...
@overload
def link(mentions: list[str], *, index: PathLike = ..., k: int = ...) -> list[Answer]: ...
def link(mentions: str | list[str], *, index: PathLike = DEFAULT, k: int = 5) -> Answer | list[Answer]:
    """Link one mention, or a list of mentions, to the concepts of an index; at most `k` candidates each.

    An index is opened by the first call and kept. `Linker` has filters, thresholds and calibration.

        >>> sapbert.link("heart attack")[0].concept_id
        'mesh:D009203'
    """
    from sapbert.linking.answer import Answer

    if not isinstance(mentions, Iterable):
        raise TypeError(f"mentions is a string or a list of strings, got {mentions!r}")
    linker = _opened(str(index))
    if isinstance(mentions, str):
        return Answer(linker.link([mentions], k=k)[0])
    return [Answer(candidates) for candidates in linker.link(mentions, k=k)]


@overload
def annotate(
    texts: str, *, index: PathLike = ..., settings: AnnotateSettings | None = ...
) -> AnnotatedText: ...
@overload
def annotate(
    texts: list[str], *, index: PathLike = ..., settings: AnnotateSettings | None = ...
) -> list[AnnotatedText]: ...
def annotate(
    texts: str | list[str], *, index: PathLike = DEFAULT, settings: AnnotateSettings | None = None
) -> AnnotatedText | list[AnnotatedText]:
    """Find the concepts of an index in a text, or in a list of texts.

    An index is opened by the first call and kept. `Annotator` streams any number of texts.

        >>> found = sapbert.annotate("Lithium carbonate toxicity in a newborn with heart failure")
        >>> [(one.start, one.end, one.concept_id) for one in found.annotations]
        [(0, 17, 'mesh:D016651'), (0, 7, 'mesh:D008094'), (8, 17, 'mesh:D002254'), (45, 58, 'mesh:D006333')]
    """
    from sapbert.annotation.settings import AnnotateSettings

    if not isinstance(texts, Iterable):
        raise TypeError(f"texts is a string or a list of strings, got {texts!r}")
    annotator = _annotator(str(index), settings or AnnotateSettings())
    found = annotator.annotate([texts] if isinstance(texts, str) else texts)
    return found[0] if isinstance(texts, str) else found


def evaluate(
    benchmark: PathLike,
    *,
    model: PathLike | None = None,
    baseline: str | None = None,
    split: str = "test",
    dictionary: PathLike | None = None,
    progress: Progress = no_progress,
) -> System:
    """Measure an encoder, or a baseline (exact, tfidf, bm25, edit), on a benchmark.

    >>> system = sapbert.evaluate("benchmark", model="default")
    >>> system.accuracies("dictionary", 1)
    array([0.5])
    """
    from sapbert.evaluation import rankers
    from sapbert.evaluation.benchmarks.loader import open_evaluation_set
    from sapbert.evaluation.compare import System
    from sapbert.evaluation.model_ranker import model_ranker
    from sapbert.evaluation.run import evaluate

    if (model is None) == (baseline is None):
        raise TypeError("evaluate takes either a model or a baseline")
    opened = open_evaluation_set(Path(benchmark), dictionary=None if dictionary is None else Path(dictionary))
    if baseline is not None:
        ranker = rankers.baseline(baseline)
    else:
        _, ranker = model_ranker(str(model), None, partial(progress, "encode"))
    return System(opened.name, (evaluate(opened, ranker, split=split),))


def compare(
    first: System | PathLike, second: System | PathLike, *, k: int = 1, seed: int = 0
) -> list[Comparison]:
    """Test whether two systems differ significantly; returns one comparison per dictionary of the benchmark.

    Both must have been evaluated on the same mentions.

    >>> better = sapbert.evaluate("benchmark", model="default")
    >>> baseline = sapbert.evaluate("benchmark", baseline="exact")
    >>> [comparison] = sapbert.compare(baseline, better)
    """
    from sapbert.evaluation.compare import System, compare

    opened = [
        system if isinstance(system, System) else System.open(Path(system)) for system in (first, second)
    ]
    return compare(opened[0], opened[1], k=k, seed=seed)


def _vocabulary(vocabulary: Vocabulary | PathLike) -> Vocabulary:
    from sapbert.vocab.vocabulary import Vocabulary

    return vocabulary if isinstance(vocabulary, Vocabulary) else Vocabulary.open(vocabulary)


@cache
def _annotator(index: str, settings: AnnotateSettings) -> Annotator:
    from sapbert.annotation.annotator import Annotator

    return Annotator.open(index, settings)


@cache
def _opened(index: str) -> Linker:
    from sapbert.linking.linker import Linker

    return Linker.open(index)
