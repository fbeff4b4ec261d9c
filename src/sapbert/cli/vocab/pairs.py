"""`sapbert pairs`."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sapbert.cli.options import ExplicitOptions, with_options
from sapbert.cli.output import forbid_overwriting_input, progress_bar, quantity, report_manifest
from sapbert.cli.parameters import LABELLED_MENTIONS, Output, Prefix
from sapbert.errors import ConfigError
from sapbert.pairs.settings import PairSettings

if TYPE_CHECKING:
    from sapbert.pairs.artifact import Pairs
    from sapbert.progress import Progress


@with_options()
def pairs(
    source: Annotated[
        Path,
        typer.Argument(
            help="A vocabulary, a pairs artifact, or a text file of id||name||name lines.", show_default=False
        ),
    ],
    output: Output,
    explicit: ExplicitOptions[PairSettings],
    mentions: Annotated[
        Path | None,
        typer.Option(help=f"{LABELLED_MENTIONS}: pair each mention with the names of its concept."),
    ] = None,
    prefix: Prefix = None,
) -> None:
    """Draw training pairs: two names of one concept.

    From a vocabulary: at most --limit pairs per concept, drawn uniformly, or with --mentions, pairs for
    fine-tuning. From a pairs artifact: the text file of the reference code. From such a text file: a pairs
    artifact.
    """
    from sapbert.artifacts import load_manifest
    from sapbert.pairs import artifact
    from sapbert.vocab.writer import KIND as VOCABULARY

    forbid_overwriting_input(output.out, source)
    kind = "text" if source.is_file() else load_manifest(source, verify=False).kind
    if mentions is not None and kind != VOCABULARY:
        raise ConfigError(f"--mentions needs a vocabulary, but {source} is {kind}")
    drawn = kind == VOCABULARY and mentions is None
    _forbid(explicit.values if not drawn else ["prefix"] if prefix is not None else [])
    if kind == artifact.KIND:
        _write_text(artifact.Pairs.open(source), output)
        return
    with progress_bar() as progress:
        if kind == "text":
            made = _read_text(source, output, prefix, progress)
        elif mentions is not None:
            made = _pair_mentions(source, mentions, output, prefix)
        else:
            made = _draw(source, output, PairSettings(**explicit.values), progress)
    report_manifest(made.manifest, output)


def _forbid(options: Iterable[str]) -> None:
    """Reject options that have no effect for this source."""
    for option in options:
        raise ConfigError(f"--{option.replace('_', '-')} has no effect here; see sapbert pairs --help")


def _read_text(source: Path, output: Output, prefix: str | None, progress: Progress) -> Pairs:
    from sapbert.pairs.reference import read_reference
    from sapbert.vocab.input_files import InputReader

    inputs = InputReader(progress=progress)
    return read_reference(source, output.out, inputs, prefix=prefix, overwrite=output.overwrite)


def _pair_mentions(source: Path, mentions: Path, output: Output, prefix: str | None) -> Pairs:
    from sapbert.pairs.mentions import pair_mentions
    from sapbert.vocab.vocabulary import Vocabulary

    vocabulary = Vocabulary.open(source)
    return pair_mentions(vocabulary, mentions, output.out, prefix=prefix, overwrite=output.overwrite)


def _draw(source: Path, output: Output, settings: PairSettings, progress: Progress) -> Pairs:
    from sapbert.pairs.draw import draw_pairs
    from sapbert.vocab.vocabulary import Vocabulary

    vocabulary = Vocabulary.open(source)
    return draw_pairs(vocabulary, output.out, settings, overwrite=output.overwrite, progress=progress)


def _write_text(pairs: Pairs, output: Output) -> None:
    from sapbert.pairs.reference import write_reference

    omitted = write_reference(pairs, output.out, overwrite=output.overwrite)
    written = len(pairs) - omitted
    if output.json:
        typer.echo(json.dumps({"pairs": written, "pairs left out": omitted}))
        return
    typer.echo(f"{quantity(written, 'pair')} -> {output.out}", err=True)
    if omitted:
        typer.echo(f"{quantity(omitted, 'pair')} omitted: a name contains ||", err=True)
