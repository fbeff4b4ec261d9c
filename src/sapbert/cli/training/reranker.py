"""`sapbert reranker`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sapbert.cli.options import ExplicitOptions, with_options
from sapbert.cli.output import forbid_overwriting_input
from sapbert.cli.parameters import Base, IndexPath, Prefix, Recipe, TrainingMentions
from sapbert.cli.training.run import TrainingOutput, monitored, recipe_settings
from sapbert.defaults import resolve_default
from sapbert.errors import needing
from sapbert.training.settings import RerankerSettings

if TYPE_CHECKING:
    from sapbert.training.reranking.dataset import RerankerDataset

_GROUPS = {
    "max_length": "Loop",
    "pooling": "Objective",
    "batch_size": "Loop",
    "held_out": "Evaluation",
    "learning_rate": "Loop",
    "weight_decay": "Loop",
    "checkpoint_every": "Checkpoints",
}


@with_options(_GROUPS)
def reranker(
    index: IndexPath,
    mentions: TrainingMentions,
    base: Base,
    output: TrainingOutput,
    explicit: ExplicitOptions[RerankerSettings],
    context_column: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", help="Column of --mentions with the text around a mention."),
    ] = None,
    prefix: Prefix = None,
    recipe: Recipe = None,
) -> None:
    """Train a reranker on the candidates of an index.

    The reranker is a cross-encoder: it reads a mention and a candidate together and learns to rank correct
    candidates first. `sapbert export` prepares it for `link --reranker`. Ctrl-C finishes the step and saves a
    checkpoint; --resume continues from it.
    """
    settings = recipe_settings(recipe, explicit, RerankerSettings)
    with needing("train"):
        from sapbert.training.distributed import local_device
        from sapbert.training.reranking.trainer import train_reranker
    from sapbert.artifacts import refuse_occupied

    forbid_overwriting_input(output.out, index, mentions, base)
    device = local_device()
    # Training checks this too, but only after all mentions are linked.
    refuse_occupied(output.out, overwrite=output.overwrite, kind="reranker")
    dataset = _link(index, mentions, prefix, context_column, settings.candidates)
    with monitored(output) as on_step:
        train_reranker(
            dataset,
            base,
            output.out,
            settings,
            device=device,
            resume=output.resume,
            overwrite=output.overwrite,
            on_step=on_step,
        )


def _link(
    index: str, mentions: Path, prefix: str | None, context_column: str | None, candidates: int
) -> RerankerDataset:
    """Link the labelled mentions, and report how many can be trained on."""
    from sapbert.index.folder import damage_explained
    from sapbert.linking.linker import Linker
    from sapbert.linking.reranker_examples import rerank_examples
    from sapbert.mentions import read_labelled_mentions
    from sapbert.vocab.input_files import InputReader

    inputs = InputReader()
    labelled = read_labelled_mentions(mentions, inputs, prefix=prefix, context_column=context_column)
    with damage_explained(resolve_default(index, "index")):
        linker = Linker.open(index)
        dataset = rerank_examples(
            linker,
            labelled,
            candidates=candidates,
            context=context_column is not None,
            inputs={Path(index).name: {"fingerprint": linker.fingerprint}, **inputs.checksums},
        )
    correct = sum(any(example.is_right) for example in dataset.examples)
    typer.echo(
        f"{len(set(labelled)):,} distinct mentions: {len(dataset.examples):,} with a concept of the index, "
        f"{correct:,} with a correct one among {candidates} candidates",
        err=True,
    )
    return dataset
