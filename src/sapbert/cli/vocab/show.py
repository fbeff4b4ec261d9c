"""`sapbert show`."""

from __future__ import annotations

import json as json_module
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sapbert.cli.output import Json, aligned
from sapbert.errors import SapbertError

if TYPE_CHECKING:
    from sapbert.artifacts import Manifest
    from sapbert.vocab.vocabulary import Concept, Vocabulary

_SHOWN = 5
"""Examples, and lines of each distribution."""


def show(
    path: Annotated[Path, typer.Argument(help="A directory that sapbert wrote.")],
    what: Annotated[
        str | None, typer.Argument(help="An identifier (mesh:D008881) or a name, to see that concept.")
    ] = None,
    json: Json = False,
) -> None:
    """Tell what an artifact holds, or show a concept.

    What it is, its counts, its settings and where it comes from (checksums are of unpacked content); with an
    identifier or a name, the concepts of a vocabulary that have it.
    """
    from sapbert.artifacts import load_manifest

    manifest = load_manifest(path)
    if what is not None:
        _show_concepts(path, what, as_json=json)
    elif json:
        typer.echo(json_module.dumps(asdict(manifest), ensure_ascii=False))
    else:
        _show_manifest(path, manifest)


def _show_manifest(path: Path, manifest: Manifest) -> None:
    typer.echo(f"{path}: {manifest.kind} {manifest.fingerprint}")
    typer.echo(f"written {manifest.created} by sapbert {manifest.sapbert}")
    _section("holds", {what: count for what, count in manifest.counts.items() if count})
    told = {name: str(value) for name, value in manifest.settings.items() if value not in (None, [])}
    _section("settings", told)
    for name, record in manifest.inputs.items():
        typer.echo(f"from {name}: {', '.join(f'{key} {value}' for key, value in record.items())}")
    if manifest.kind == "vocabulary":
        _show_vocabulary(path)
    elif manifest.kind == "pairs":
        _show_pairs(path)
    elif manifest.kind in ("model", "reranker"):
        _section("learned", manifest.details)
    elif manifest.kind == "index":
        _section("searches", manifest.details)


def _show_vocabulary(path: Path) -> None:
    from sapbert.vocab.vocabulary import Vocabulary

    vocabulary = Vocabulary.open(path, verify=False)
    for column in ("language", "source"):
        _section(f"names by {column}", vocabulary.count_names(column, _SHOWN))
    labels = vocabulary.type_labels
    types = vocabulary.count_types(_SHOWN)
    _section("concepts by type", {f"{type} {labels.get(type, '')}".strip(): n for type, n in types.items()})


def _show_pairs(path: Path) -> None:
    from sapbert.pairs.artifact import Pairs

    pairs = Pairs.open(path, verify=False)
    typer.echo("for example")
    step = max(len(pairs) // _SHOWN, 1)
    for left, right in pairs.pairs[::step][:_SHOWN]:
        concept = pairs.concept_ids[pairs.concepts[left]]
        typer.echo(f"  {concept}  {pairs.names[left]}  =  {pairs.names[right]}")


def _show_concepts(path: Path, what: str, *, as_json: bool) -> None:
    from sapbert.vocab.vocabulary import Vocabulary

    vocabulary = Vocabulary.open(path, verify=False)
    by_id = vocabulary.concept(what)
    concepts = [by_id] if by_id else vocabulary.find(what)
    if not concepts:
        raise SapbertError(f"{path}: no concept has the identifier or name {what!r}")
    if as_json:
        typer.echo(json_module.dumps([asdict(concept) for concept in concepts], ensure_ascii=False))
        return
    for concept in concepts:
        _show_concept(concept, vocabulary)


def _show_concept(concept: Concept, vocabulary: Vocabulary) -> None:
    typer.echo(f"{concept.id}  {concept.preferred_name}")
    for type in concept.types:
        typer.echo(f"  type {type} {vocabulary.type_labels.get(type, '')}".rstrip())
    for name in concept.names:
        notes = [name.language, name.source, "preferred" if name.preferred else name.scope]
        typer.echo(f"  {name.text}  ({', '.join(note for note in notes if note)})")
    for title, ids in (("also", concept.aliases), ("see", concept.xrefs)):
        if ids:
            typer.echo(f"  {title} {' '.join(ids)}")


def _section(title: str, rows: Mapping[str, object]) -> None:
    if rows:
        typer.echo(title)
        for line in aligned(rows):
            typer.echo(f"  {line}")
