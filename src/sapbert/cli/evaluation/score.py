"""`sapbert score`."""

from __future__ import annotations

import json as json_module
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from sapbert.annotation.settings import AnnotateSettings
from sapbert.cli.options import with_options
from sapbert.cli.output import print_table
from sapbert.cli.parameters import JsonResults, Prefix, Threads
from sapbert.defaults import DEFAULT


@with_options(without=("prefixes", "context"))
def score(
    corpus: Annotated[
        Path,
        typer.Argument(help="Annotated texts: a PubTator file.", show_default=False),
    ],
    settings: AnnotateSettings,
    index: Annotated[
        str, typer.Option(help="Written by `sapbert index`.", show_default="bundled MeSH index")
    ] = DEFAULT,
    gold_types: Annotated[
        list[str] | None,
        typer.Option("--gold-type", help="Only gold mentions of this type, such as Disease. Repeatable."),
    ] = None,
    prefix: Prefix = None,
    threads: Threads = None,
    json: JsonResults = False,
) -> None:
    """Measure `sapbert annotate` on a corpus of annotated texts.

    Reports precision, recall and F1 of found and linked mentions: strict (equal offsets), relaxed (offsets
    may differ by one character) and per document (distinct concepts).
    """
    from sapbert.annotation.annotator import Annotator
    from sapbert.annotation.input.pubtator import read_pubtator
    from sapbert.errors import FormatError
    from sapbert.evaluation.text_corpora import evaluate_texts
    from sapbert.vocab.input_files import InputReader, Release

    source = next(iter(Release(corpus).find_all(".*")), None)
    if source is None:
        raise FormatError(corpus, None, "no file found")
    annotator = Annotator.open(index, replace(settings, context=False), threads=threads)
    documents = read_pubtator(source, InputReader())
    evaluation = evaluate_texts(documents, annotator, types=gold_types or (), prefix=prefix)
    if not evaluation.mentions:
        kinds = f" of type {', '.join(gold_types)}" if gold_types else ""
        raise FormatError(corpus, None, f"no annotated mention{kinds} has a concept id")
    if json:
        typer.echo(json_module.dumps(evaluation.to_json()))
        return
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for title in ("layer", "level", "precision", "recall", "F1"):
        table.add_column(title)
    for layer, levels in evaluation.scores.items():
        for level, counts in levels.items():
            values = (counts.precision, counts.recall, counts.f1)
            table.add_row(layer, level, *(f"{value:.3f}" for value in values))
    print_table(table)
    rate = evaluation.documents / max(evaluation.cpu_seconds, 1e-9)
    typer.echo(
        f"{evaluation.documents:,} documents, {evaluation.mentions:,} mentions, "
        f"{rate:,.0f} documents per CPU second",
        err=True,
    )
