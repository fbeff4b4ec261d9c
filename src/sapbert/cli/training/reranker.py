"""`sapbert reranker`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sapbert.cli.options import with_options
from sapbert.cli.output import Out, Overwrite, refuse_input
from sapbert.cli.training import train
from sapbert.defaults import resolve_default
from sapbert.errors import needing
from sapbert.training.settings import RerankerSettings

if TYPE_CHECKING:
    from sapbert.training.reranking.dataset import RerankerDataset

_GROUPS = {
    "max_length": "Loop",
    "pooling": "Objective",
    "batch_size": "Loop",
    "held_out": "Measuring",
    "learning_rate": "Loop",
    "checkpoint_every": "Checkpoints",
}


@with_options(RerankerSettings, _GROUPS)
def reranker(
    context: typer.Context,
    index: Annotated[str, typer.Argument(help="Written by `sapbert index`; its candidates are learned.")],
    mentions: train.LearnedMentions,
    base: train.Base,
    out: Out,
    context_column: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", help="Column of --mentions with the text around a mention."),
    ] = None,
    prefix: train.LearnedPrefix = None,
    recipe: train.Recipe = None,
    tensorboard: train.TensorBoard = None,
    resume: train.Resume = False,
    overwrite: Overwrite = False,
) -> None:
    """Train a reranker on the candidates of an index.

    It reads each candidate beside its mention (a cross-encoder) and learns to put right ones first. `sapbert
    export` makes it ready for `link --reranker`. Ctrl-C finishes the step and saves a checkpoint; --resume
    goes on from there.
    """
    settings = train.asked_settings(context, recipe, RerankerSettings)
    with needing("train"):
        from sapbert.training import distributed as gather
        from sapbert.training.reranking.trainer import train_reranker
    from sapbert.artifacts import refuse_occupied

    refuse_input(out, index, mentions, base)
    device = gather.local_device()
    # All mentions are linked before training looks at this.
    refuse_occupied(out, overwrite=overwrite)
    dataset = _linked(index, mentions, prefix, context_column, settings.candidates)
    with train.watched(out, tensorboard) as on_step:
        train_reranker(
            dataset, base, out, settings, device=device, resume=resume, overwrite=overwrite, on_step=on_step
        )


def _linked(
    index: str, mentions: Path, prefix: str | None, context_column: str | None, candidates: int
) -> RerankerDataset:
    """Link the labelled mentions, and tell how many can be learned from."""
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
    right = sum(any(example.is_right) for example in dataset.examples)
    typer.echo(
        f"{len(set(labelled)):,} distinct mentions: {len(dataset.examples):,} with a concept of the index, "
        f"{right:,} with a right candidate among the first {candidates}",
        err=True,
    )
    return dataset
