"""`sapbert plot FIGURE`: one command a figure."""

from __future__ import annotations

import json as json_module
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sapbert.cli.report import Overwrite, progress_bar
from sapbert.errors import MissingExtraError

if TYPE_CHECKING:
    from sapbert.pairs.artifact import Pairs
    from sapbert.training.similarities import Distribution, SampleSettings, Similarities

app = typer.Typer(no_args_is_help=True, context_settings={"help_option_names": ["-h", "--help"]})


@app.callback()
def plot() -> None:
    """Draw a figure as .png, .svg or .pdf."""


@app.command()
def similarities(
    pairs: Annotated[Path, typer.Argument(help="Written by `sapbert pairs`.", show_default=False)],
    models: Annotated[
        list[str],
        typer.Option(
            "--model",
            metavar="ENCODER",
            help="A folder or a Hugging Face id; repeat to compare, such as before and after training.",
            show_default=False,
        ),
    ],
    out: Annotated[
        Path,
        typer.Option("--out", "-o", help="Figure to write: .png, .svg or .pdf.", show_default=False),
    ],
    batches: Annotated[int, typer.Option(min=1, help="Batches to draw and encode.")] = 20,
    batch_size: Annotated[int, typer.Option(min=2, help="Pairs a batch.")] = 256,
    margin: Annotated[
        float, typer.Option(help="A triplet counts as learned if its negative is so much farther.")
    ] = 0.2,
    seed: Annotated[int, typer.Option(min=0, help="Same seed, same batches for every model.")] = 33,
    overwrite: Overwrite = False,
    json: Annotated[bool, typer.Option("--json", help="Print the counts as JSON as well.")] = False,
) -> None:
    """Cosines of pairs, before and after mining.

    Fig. 2 of the paper: how alike are two names of one concept, and of different ones? Batches are drawn and
    mined as in training. The less the two kinds overlap, the more the encoder knows; mining keeps the pairs
    that it still confuses.
    """
    try:
        from sapbert.plots.figures import require_figure
        from sapbert.plots.similarities import draw_similarities
        from sapbert.training.similarities import SampleSettings
    except ImportError as error:
        module = error.name or "torch"
        raise MissingExtraError(module, "plot" if module == "matplotlib" else "train") from error
    from sapbert.pairs.artifact import Pairs

    require_figure(out, overwrite=overwrite)
    settings = SampleSettings(batches=batches, batch_size=batch_size, margin=margin, seed=seed)
    found = _count(Pairs.open(pairs), models, settings)
    draw_similarities(found, out, batches=batches, overwrite=overwrite)
    if json:
        typer.echo(json_module.dumps({**asdict(settings), **_numbers(found)}))
    typer.echo(f"figure -> {out}", err=True)


def _count(pairs: Pairs, models: list[str], settings: SampleSettings) -> dict[str, Similarities]:
    """Count the similarities of the same batches for each model."""
    from sapbert.encoder.transformer import TransformerEncoder
    from sapbert.training.similarities import sample_similarities

    found: dict[str, Similarities] = {}
    with progress_bar() as progress:
        for model in dict.fromkeys(models):

            def on_batch(done: int, model: str = model) -> None:
                progress(model, done, settings.batches)

            encoder = TransformerEncoder.open(model)
            found[model] = sample_similarities(pairs, encoder, settings, on_batch=on_batch)
    return found


def _numbers(found: dict[str, Similarities]) -> dict[str, Any]:
    from sapbert.training.similarities import EDGES

    def of(distribution: Distribution) -> dict[str, Any]:
        return {
            "positives": distribution.positives.tolist(),
            "negatives": distribution.negatives.tolist(),
            "overlap": distribution.overlap,
        }

    models = {model: {"all": of(counted.every), "hard": of(counted.hard)} for model, counted in found.items()}
    return {"edges": EDGES.tolist(), "models": models}
