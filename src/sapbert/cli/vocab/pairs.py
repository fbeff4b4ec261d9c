"""`sapbert pairs`."""

from __future__ import annotations

import json as json_module
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from sapbert.cli.options import named_number
from sapbert.cli.output import Json, Out, Overwrite, counted, progress_bar, refuse_input, tell
from sapbert.errors import ConfigError


class LanguageRule(StrEnum):
    """Spelled like `pairs.sampling.Languages`, which is not loaded for --help."""

    ANY = "any"
    WITHIN = "within"
    ACROSS = "across"


def pairs(
    context: typer.Context,
    source: Annotated[
        Path, typer.Argument(help="A vocabulary, a pairs artifact, or a text file of id||name||name lines.")
    ],
    out: Out,
    limit: Annotated[int, typer.Option(min=1, help="Most pairs drawn from one concept.")] = 50,
    seed: Annotated[int, typer.Option(min=0, help="Same vocabulary and seed, same pairs.")] = 33,
    languages: Annotated[LanguageRule, typer.Option(help="Which names may be paired.")] = LanguageRule.ANY,
    weight: Annotated[
        list[str],
        typer.Option(
            parser=named_number,
            metavar="SOURCE=NUMBER",
            help="How often pairs with a name of this source come: 2 is twice, 0.25 every fourth. "
            "May be given again.",
        ),
    ] = [],
    mentions: Annotated[
        Path | None,
        typer.Option(help="TSV with columns mention and concept_ids: pair each with its concept's names."),
    ] = None,
    prefix: Annotated[
        str | None, typer.Option(help="For identifiers without one, in --mentions or a text file.")
    ] = None,
    overwrite: Overwrite = False,
    json: Json = False,
) -> None:
    """Draw training pairs: two names of one concept.

    From a vocabulary: at most --limit pairs a concept, drawn uniformly; with --mentions, pairs to fine-tune
    on instead. From a pairs artifact: the reference code's text file. From such a text file: an artifact.
    """
    from sapbert.artifacts import load_manifest
    from sapbert.pairs import artifact, draw, reference
    from sapbert.pairs import mentions as labelled
    from sapbert.pairs import settings as settings_module
    from sapbert.vocab.input_files import InputReader
    from sapbert.vocab.vocabulary import Vocabulary
    from sapbert.vocab.writer import KIND as VOCABULARY

    refuse_input(out, source)
    with progress_bar() as progress:
        kind = "text" if source.is_file() else load_manifest(source, verify=False).kind
        if mentions is not None and kind != VOCABULARY:
            raise ConfigError(f"--mentions goes with a vocabulary, but {source} is {kind}")
        drawing = kind == VOCABULARY and mentions is None
        _refuse_idle(context, ("prefix",) if drawing else ("limit", "seed", "languages", "weight"))
        if kind == "text":
            inputs = InputReader(progress=progress)
            made = reference.read_reference(source, out, inputs, prefix=prefix, overwrite=overwrite)
        elif kind == artifact.KIND:
            made = artifact.Pairs.open(source)
            left_out = reference.write_reference(made, out, overwrite=overwrite)
            _tell_text(out, written=len(made) - left_out, left_out=left_out, as_json=json)
            return
        elif mentions is not None:
            made = labelled.pair_mentions(
                Vocabulary.open(source), mentions, out, prefix=prefix, overwrite=overwrite
            )
        else:
            settings = settings_module.PairSettings(
                limit=limit,
                seed=seed,
                languages=settings_module.Languages(languages),
                weights=dict(weight),  # type: ignore[arg-type]  # parsed by named_number
            )
            made = draw.draw_pairs(
                Vocabulary.open(source), out, settings, overwrite=overwrite, progress=progress
            )
    tell(made.manifest, out, as_json=json)


def _refuse_idle(context: typer.Context, options: tuple[str, ...]) -> None:
    """Refuse options that were given but mean nothing for what is done."""
    for option in options:
        source = context.get_parameter_source(option)
        if source is not None and source.name == "COMMANDLINE":
            raise ConfigError(f"--{option} means nothing here; see sapbert pairs --help")


def _tell_text(out: Path, *, written: int, left_out: int, as_json: bool) -> None:
    if as_json:
        typer.echo(json_module.dumps({"pairs": written, "pairs left out": left_out}))
        return
    typer.echo(f"{counted(written, 'pair')} -> {out}", err=True)
    if left_out:
        typer.echo(f"{counted(left_out, 'pair')} left out: a name with || in it does not fit", err=True)
