"""Figures that `sapbert plot` and `sapbert reproduce` draw."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from sapbert.cli.output import progress_bar
from sapbert.errors import MissingExtraError

if TYPE_CHECKING:
    from sapbert.pairs.artifact import Pairs
    from sapbert.paper.settings import ProjectionSettings, SimilaritySettings
    from sapbert.paper.similarities import Similarities

_PLOT_MODULES = ("matplotlib", "sklearn")


@contextmanager
def figure_extras() -> Iterator[None]:
    """Name the missing extra if the imports of a figure fail: `plot` or `train`."""
    try:
        yield
    except ImportError as error:
        module = (error.name or "torch").partition(".")[0]
        raise MissingExtraError(module, "plot" if module in _PLOT_MODULES else "train") from error


def draw_similarity_figure(
    pairs: Path, models: Mapping[str, str], out: Path, settings: SimilaritySettings, *, overwrite: bool
) -> dict[str, Similarities]:
    """Count and draw the similarities of `models`, which maps the title of a panel to its encoder."""
    with figure_extras():
        from sapbert.plots.figures import check_figure_target
        from sapbert.plots.similarities import draw_similarities
    from sapbert.pairs.artifact import Pairs

    check_figure_target(out, overwrite=overwrite)
    similarities = _count(Pairs.open(pairs), models, settings)
    draw_similarities(similarities, out, batches=settings.batches, overwrite=overwrite)
    for title, counts in similarities.items():
        overlaps = f"{counts.all_pairs.overlap:.0%} before mining, {counts.mined.overlap:.0%} after"
        typer.echo(f"{title}: positive and negative pairs overlap by {overlaps}", err=True)
    typer.echo(f"figure -> {out}", err=True)
    return similarities


def _count(pairs: Pairs, models: Mapping[str, str], settings: SimilaritySettings) -> dict[str, Similarities]:
    """Count the similarities of the same batches for each model."""
    from sapbert.encoder.transformer import TransformerEncoder
    from sapbert.paper.similarities import count_similarities

    similarities: dict[str, Similarities] = {}
    with progress_bar() as progress:
        for title, model in models.items():

            def on_batch(done: int, title: str = title) -> None:
                progress(title, done, settings.batches)

            encoder = TransformerEncoder.open(model)
            similarities[title] = count_similarities(pairs, encoder, settings, on_batch=on_batch)
    return similarities


def draw_name_figures(
    names: Path,
    models: Mapping[str, str],
    targets: Sequence[Path],
    settings: ProjectionSettings,
    *,
    overwrite: bool,
) -> None:
    """Project names once and draw them to all of `targets`; `models` maps a panel's title to its encoder."""
    with figure_extras():
        from sapbert.paper.projection import project, sample_names
        from sapbert.plots.figures import check_figure_target
        from sapbert.plots.tsne import draw_tsne
    from sapbert.artifacts import create_file, require_free
    from sapbert.encoder.open import open_encoder
    from sapbert.plots.tsne_page import tsne_page

    pages = [out for out in targets if out.suffix.lower() == ".html"]
    for out in targets:
        (require_free if out in pages else check_figure_target)(out, overwrite=overwrite)
    sample = sample_names(names, settings)
    projections = {title: project(sample, open_encoder(model), settings) for title, model in models.items()}
    for out in targets:
        if out in pages:
            with create_file(out, overwrite=overwrite) as partial:
                partial.write_text(tsne_page(sample, projections), encoding="utf-8", errors="replace")
        else:
            draw_tsne(sample, projections, out, overwrite=overwrite)
    for title, projection in projections.items():
        typer.echo(f"{title}: nearest name has the same concept: {projection.nearest:.1%}", err=True)
    for out in targets:
        typer.echo(f"figure -> {out}", err=True)
