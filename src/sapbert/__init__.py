"""From any biomedical vocabulary to a working entity linker.

One function per stage; each is also a command, mostly of the same name (`sapbert pairs` is `draw_pairs`,
`sapbert index` is `build_index`, `sapbert flash` is `train_flash`):

    read         a vocabulary from its publisher's files
    merge        several vocabularies by their cross-references
    draw_pairs   synonym pairs from a vocabulary
    train        an encoder on pairs, by self-alignment (SapBERT)
    train_flash  a flash encoder on pairs: a table instead of a transformer
    export       an encoder to ONNX, to run without torch
    build_index  an index of a vocabulary's names
    link         mentions to concepts
    annotate     running text with concepts
    evaluate     an encoder or a baseline on a benchmark
    compare      two evaluations

    >>> import sapbert
    >>> print(sapbert.link("heart attack", k=1))
    mesh:D009203  Myocardial Infarction  (exact: Heart Attack, score 1.000, confidence 0.98)

Each name is imported when it is first used: `import sapbert` loads only the standard library.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from sapbert.errors import SapbertError
from sapbert.version import __version__

if TYPE_CHECKING:
    from sapbert.annotation.annotation import AnnotatedText, Annotation
    from sapbert.annotation.annotator import Annotator
    from sapbert.annotation.settings import AnnotateSettings
    from sapbert.api import (
        annotate,
        build_index,
        compare,
        draw_pairs,
        evaluate,
        export,
        link,
        merge,
        read,
        train,
        train_flash,
    )
    from sapbert.index.settings import IndexSettings
    from sapbert.linking.answer import Answer
    from sapbert.linking.candidate import NIL, Candidate
    from sapbert.linking.linker import Linker
    from sapbert.linking.settings import LinkSettings
    from sapbert.pairs.artifact import Pairs
    from sapbert.pairs.settings import PairSettings
    from sapbert.training.settings import FlashSettings, TrainSettings
    from sapbert.vocab.settings import MergeSettings
    from sapbert.vocab.vocabulary import Concept, Vocabulary

__all__ = [
    "NIL",
    "AnnotateSettings",
    "AnnotatedText",
    "Annotation",
    "Annotator",
    "Answer",
    "Candidate",
    "Concept",
    "FlashSettings",
    "IndexSettings",
    "LinkSettings",
    "Linker",
    "MergeSettings",
    "PairSettings",
    "Pairs",
    "SapbertError",
    "TrainSettings",
    "Vocabulary",
    "__version__",
    "annotate",
    "build_index",
    "compare",
    "draw_pairs",
    "evaluate",
    "export",
    "link",
    "merge",
    "read",
    "train",
    "train_flash",
]

_MODULES = {
    "NIL": "linking.candidate",
    "AnnotateSettings": "annotation.settings",
    "AnnotatedText": "annotation.annotation",
    "Annotation": "annotation.annotation",
    "Annotator": "annotation.annotator",
    "Answer": "linking.answer",
    "Candidate": "linking.candidate",
    "Concept": "vocab.vocabulary",
    "FlashSettings": "training.settings",
    "IndexSettings": "index.settings",
    "LinkSettings": "linking.settings",
    "Linker": "linking.linker",
    "MergeSettings": "vocab.settings",
    "PairSettings": "pairs.settings",
    "Pairs": "pairs.artifact",
    "TrainSettings": "training.settings",
    "Vocabulary": "vocab.vocabulary",
    "annotate": "api",
    "build_index": "api",
    "compare": "api",
    "draw_pairs": "api",
    "evaluate": "api",
    "export": "api",
    "link": "api",
    "merge": "api",
    "read": "api",
    "train": "api",
    "train_flash": "api",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'sapbert' has no attribute {name!r}")
    return getattr(import_module(f"sapbert.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
