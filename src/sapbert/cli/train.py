"""`sapbert train`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sapbert.cli.report import Out, Overwrite
from sapbert.errors import MissingExtraError

if TYPE_CHECKING:
    from sapbert.training.trainer import OnStep


def train(
    pairs: Annotated[Path, typer.Argument(help="Written by `sapbert pairs`.")],
    base: Annotated[str, typer.Option(help="Encoder to start from: a folder or a Hugging Face id.")],
    out: Out,
    recipe: Annotated[Path | None, typer.Option(help="TOML file with settings; options count more.")] = None,
    pooling: Annotated[
        str | None, typer.Option(help="cls, mean, mean-all-tokens, first-token, no-special.")
    ] = None,
    max_length: Annotated[int | None, typer.Option(help="Tokens of a name.")] = None,
    batch_size: Annotated[int | None, typer.Option(help="Pairs a step, over all processes.")] = None,
    chunk: Annotated[int | None, typer.Option(help="Names encoded at a time, where memory is short.")] = None,
    epochs: Annotated[float | None, typer.Option(help="Times through all pairs.")] = None,
    learning_rate: Annotated[float | None, typer.Option()] = None,
    weight_decay: Annotated[float | None, typer.Option()] = None,
    schedule: Annotated[str | None, typer.Option(help="constant or linear.")] = None,
    warmup: Annotated[float | None, typer.Option(help="Fraction of all steps.")] = None,
    clip: Annotated[float | None, typer.Option(help="Largest norm of the gradient.")] = None,
    precision: Annotated[str | None, typer.Option(help="fp32, bf16 or fp16.")] = None,
    loss: Annotated[
        str | None, typer.Option(help="ms, circle, nca, lifted, infonce, triplet, cosine.")
    ] = None,
    triplets: Annotated[
        str | None, typer.Option(help="all, hard, semihard, easy, or off: no mining.")
    ] = None,
    margin: Annotated[float | None, typer.Option(help="When a triplet counts as learned.")] = None,
    held_out: Annotated[int | None, typer.Option(help="Concepts kept to measure with.")] = None,
    evaluate_every: Annotated[int | None, typer.Option(help="Steps between measurements.")] = None,
    checkpoint_every: Annotated[int | None, typer.Option(help="Steps between checkpoints.")] = None,
    keep: Annotated[int | None, typer.Option(help="Checkpoints kept.")] = None,
    seed: Annotated[int | None, typer.Option(help="Same settings and seed, same model.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the newest checkpoint.")] = False,
    overwrite: Overwrite = False,
) -> None:
    """Train an encoder so that names of one concept lie close together (SapBERT).

    Defaults are the paper's pretraining. Ctrl-C finishes the step and saves a checkpoint; --resume goes on
    from there. Under torchrun, several processes share each batch.
    """
    from sapbert.training.settings import read_recipe, settings_from

    options = {
        "pooling": pooling,
        "max_length": max_length,
        "batch_size": batch_size,
        "chunk": chunk,
        "epochs": epochs,
        "learning_rate": learning_rate,
        "weight_decay": weight_decay,
        "schedule": schedule,
        "warmup": warmup,
        "clip": clip,
        "precision": precision,
        "loss": loss,
        "triplets": triplets,
        "margin": margin,
        "held_out": held_out,
        "evaluate_every": evaluate_every,
        "checkpoint_every": checkpoint_every,
        "keep": keep,
        "seed": seed,
    }
    settings = settings_from(read_recipe(recipe) if recipe else {}, options)
    try:
        from sapbert.training import gather, trainer
    except ImportError as error:
        raise MissingExtraError(error.name or "torch", "train") from error
    from sapbert.pairs.artifact import Pairs

    opened, device = Pairs.open(pairs), gather.local_device()
    try:
        with _progress() as on_step:
            trainer.train(
                opened,
                base,
                out,
                settings,
                device=device,
                resume=resume,
                overwrite=overwrite,
                on_step=on_step,
            )
    except KeyboardInterrupt:
        typer.echo(f"stopped and saved in {out}.run; the same command with --resume goes on", err=True)
        raise typer.Exit(1) from None
    typer.echo(f"model -> {out}", err=True)


@contextmanager
def _progress() -> Iterator[OnStep]:
    """Give out a callback that draws a bar with the figures of the last step, and tells each measurement."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    figures = TextColumn(
        "loss {task.fields[loss]:.3f}  hard {task.fields[positives]:.0f}+{task.fields[negatives]:.0f}  "
        "{task.fields[names_per_second]:,.0f} names/s"
    )
    columns = (MofNCompleteColumn(), BarColumn(), TimeRemainingColumn(), figures)
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task("train", total=None, loss=0, positives=0, negatives=0, names_per_second=0)

        def update(done: int, total: int, found: Mapping[str, float]) -> None:
            bar.tasks[task].fields.update(found)
            bar.update(task, completed=done, total=total)
            if "retrieval" in found:
                bar.console.print(
                    f"step {done:,}: {found['retrieval']:.1%} of held-out synonyms found", highlight=False
                )

        yield update
