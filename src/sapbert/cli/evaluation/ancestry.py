"""Options of `errors` and `compare` for a hierarchy of concepts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sapbert.errors import ConfigError

if TYPE_CHECKING:
    from sapbert.evaluation.ancestry import Ancestry
    from sapbert.evaluation.run import Evaluation

HierarchyVocabulary = Annotated[
    Path | None,
    typer.Option("--vocabulary", help="Vocabulary with parents, to measure how far wrong answers are."),
]
IdPrefix = Annotated[
    str | None,
    typer.Option(
        "--prefix",
        help="Prefix in --vocabulary of ids without one, such as `mesh`.",
        show_default="ids of MeSH and OMIM are recognized",
    ),
]


def ancestry_by_dictionary(
    evaluation: Evaluation, path: Path | None, prefix: str | None
) -> dict[str, Ancestry]:
    """Measure the answers of an evaluation with each dictionary; empty without a vocabulary."""
    if path is None:
        return {}
    from sapbert.evaluation.ancestry import measure_ancestry
    from sapbert.vocab.vocabulary import Vocabulary

    vocabulary = Vocabulary.open(path, verify=False)
    if not vocabulary.hierarchy.graph:
        raise ConfigError(f"{path} has no parents; read it again from a source that has them")
    return {
        name: measure_ancestry(evaluation, name, vocabulary, prefix=prefix)
        for name in evaluation.dictionaries
    }
