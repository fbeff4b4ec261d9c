"""`sapbert show`."""

from __future__ import annotations

import json as json_module
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sapbert.cli.output import two_columns
from sapbert.defaults import resolve_default
from sapbert.errors import SapbertError
from sapbert.vocab.settings import KINDS, OWN

if TYPE_CHECKING:
    from sapbert.artifacts import Manifest
    from sapbert.vocab.vocabulary import Concept, Vocabulary

_SHOWN = 5
"""Number of examples, and of rows per table."""
_MAX_RELATED = 20
"""Number of parents and of children that are listed."""
_SHOWN_LANGUAGES = 25
"""Languages are few, and users look for theirs."""


def show(
    artifact: Annotated[
        str,
        typer.Argument(
            metavar="PATH",
            help="Folder written by sapbert, or `default` for the bundled MeSH vocabulary.",
            show_default=False,
        ),
    ],
    concept: Annotated[
        str | None, typer.Argument(help="Concept id (mesh:D008881) or name, to show that concept.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
) -> None:
    """Describe an artifact, or show a concept.

    Prints the kind, counts, settings and inputs of an artifact (checksums are of unpacked content). With a
    concept id or a name, prints the matching concepts of a vocabulary: definition, types, parents, children
    and names.
    """
    from sapbert.artifacts import load_manifest

    path = resolve_default(artifact, "vocabulary")
    manifest = load_manifest(path)
    if concept is not None:
        _show_concepts(path, concept, as_json=json)
    elif json:
        typer.echo(json_module.dumps(asdict(manifest), ensure_ascii=False))
    else:
        _show_manifest(path, manifest)


def _show_manifest(path: Path, manifest: Manifest) -> None:
    typer.echo(f"{path}: {manifest.kind} {manifest.fingerprint}")
    typer.echo(f"written {manifest.created} by sapbert {manifest.sapbert}")
    _section("counts", {name: count for name, count in manifest.counts.items() if count})
    settings = {name: str(value) for name, value in manifest.settings.items() if value not in (None, [])}
    _section("settings", settings)
    for name, record in manifest.inputs.items():
        typer.echo(f"input {name}: {', '.join(f'{key} {value}' for key, value in record.items())}")
    if manifest.kind == "vocabulary":
        _show_vocabulary(path)
    elif manifest.kind == "pairs":
        _show_pairs(path)
    elif manifest.kind in ("model", "reranker"):
        _section("training", manifest.details)
    elif manifest.kind == "index":
        _section("search", manifest.details)


def _show_vocabulary(path: Path) -> None:
    from sapbert.vocab.vocabulary import Vocabulary

    vocabulary = Vocabulary.open(path, verify=False)
    kinds = {kind or OWN: names for kind, names in vocabulary.count_names("kind", len(KINDS)).items()}
    _section("names by kind", kinds if len(kinds) > 1 else {})
    _section("names by language", vocabulary.count_names("language", _SHOWN_LANGUAGES))
    _section("names by source", vocabulary.count_names("source", _SHOWN))
    types = vocabulary.count_types(_SHOWN)
    _section("concepts by type", {vocabulary.type_label(type): count for type, count in types.items()})


def _show_pairs(path: Path) -> None:
    from sapbert.pairs.artifact import Pairs

    pairs = Pairs.open(path, verify=False)
    typer.echo("examples")
    step = max(len(pairs) // _SHOWN, 1)
    for left, right in pairs.pairs[::step][:_SHOWN]:
        concept = pairs.concept_ids[pairs.concepts[left]]
        typer.echo(f"  {concept}  {pairs.names[left]}  =  {pairs.names[right]}")


def _show_concepts(path: Path, id_or_name: str, *, as_json: bool) -> None:
    from sapbert.vocab.vocabulary import Vocabulary

    vocabulary = Vocabulary.open(path, verify=False)
    by_id = vocabulary.concept(id_or_name)
    concepts = [by_id] if by_id else vocabulary.find(id_or_name)
    if not concepts:
        raise SapbertError(
            f"{path}: no concept has the id or name {id_or_name!r}; names must match exactly, ignoring case; "
            "for similar names use `sapbert link`"
        )
    if as_json:
        described = [
            {**asdict(concept), "children": vocabulary.children(concept.concept_id)} for concept in concepts
        ]
        typer.echo(json_module.dumps(described, ensure_ascii=False))
        return
    for concept in concepts:
        _show_concept(concept, vocabulary)


def _show_concept(concept: Concept, vocabulary: Vocabulary) -> None:
    typer.echo(f"{concept.concept_id}  {concept.preferred_name}")
    if concept.definition:
        typer.echo(f"  {concept.definition}")
    for type in concept.types:
        typer.echo(f"  type {vocabulary.type_label(type)}")
    children = vocabulary.children(concept.concept_id)
    for title, ids in (("parent", concept.parents), ("child", children)):
        for line in _named(title, ids, vocabulary):
            typer.echo(line)
    for name in concept.names:
        notes = [name.language, name.source, "preferred" if name.preferred else name.scope, name.kind]
        typer.echo(f"  {name.text}  ({', '.join(note for note in notes if note)})")
    for title, ids in (("also", concept.aliases), ("see", concept.xrefs)):
        if ids:
            typer.echo(f"  {title} {' '.join(ids)}")


def _named(title: str, ids: Sequence[str], vocabulary: Vocabulary) -> Iterator[str]:
    """Yield one line for each of the first concepts, and one for the rest."""
    names = vocabulary.preferred_names(ids[:_MAX_RELATED])
    for curie in ids[:_MAX_RELATED]:
        yield f"  {title} {curie}  {names.get(curie, '(not in this vocabulary)')}"
    if len(ids) > _MAX_RELATED:
        yield f"  and {len(ids) - _MAX_RELATED:,} more with the relation {title}"


def _section(title: str, rows: Mapping[str, object]) -> None:
    if rows:
        typer.echo(title)
        for line in two_columns(rows):
            typer.echo(f"  {line}")
