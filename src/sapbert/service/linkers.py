"""Open the linkers of a service: one index each, under a name.

Checksums are verified here, unlike in `sapbert link`: a service runs for weeks, and reading an index once
also loads it into the page cache. Files are memory-mapped, so several workers share one copy of an index.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from sapbert.artifacts import load_manifest
from sapbert.curies import parse_curie
from sapbert.defaults import is_default, resolve_default
from sapbert.index.folder import KIND
from sapbert.linking.linker import Linker
from sapbert.linking.settings import LinkSettings
from sapbert.service.settings import LinkerSettings


@dataclass(frozen=True, slots=True, eq=False)
class ServedLinker:
    """A linker with its name and title."""

    name: str
    title: str
    linker: Linker
    index: Path | None = None
    """Folder of the index; None for a linker that was made in memory."""

    def types_of(self, concept: int) -> list[str]:
        """Return the types of a concept, by its number."""
        name_table = self.linker.name_table
        start, stop = name_table.type_offsets[concept], name_table.type_offsets[concept + 1]
        return [name_table.types[number] for number in name_table.type_numbers[start:stop].tolist()]

    def named_types(self, types: Sequence[str]) -> list[dict[str, str]]:
        """Return types with their names to display, as the reconciliation protocol expects them."""
        labels = self.linker.name_table.type_labels
        return [{"id": code, "name": labels.get(code, code)} for code in types]

    def default_settings(self, *, types: Sequence[str] = (), sources: Sequence[str] = ()) -> LinkSettings:
        """Return the default settings: exact matches first, unless the calibration was made without them."""
        calibration = self.linker.calibration
        exact = True if calibration is None else calibration.exact
        return LinkSettings(exact=exact, types=tuple(types), sources=tuple(sources))

    def concept_number(self, concept_id: str) -> int | None:
        """Return the number of a concept, or None, by identifier or alias in any spelling of its prefix."""
        spellings = [concept_id, parse_curie(concept_id) or concept_id]
        numbers: list[int] = self.linker.name_table.concepts_of(spellings).tolist()
        return next((number for number in numbers if number >= 0), None)


def verify_indexes(linkers: Mapping[str, LinkerSettings]) -> None:
    """Verify the checksums of all indexes; those of an encoder are verified whenever it is opened."""
    for settings in linkers.values():
        load_manifest(resolve_default(settings.index, "index"), kind=KIND)


def open_linkers(linkers: Mapping[str, LinkerSettings], *, threads: int | None) -> dict[str, ServedLinker]:
    """Open all linkers, each with this number of threads; None uses all cores."""
    return {name: _open(name, settings, threads) for name, settings in linkers.items()}


def _open(name: str, settings: LinkerSettings, threads: int | None) -> ServedLinker:
    linker = Linker.open(
        settings.index,
        threads=threads,
        sparse_weight=settings.sparse_weight,
        calibration=settings.calibration,
    )
    if settings.mentions is not None:
        from sapbert.mentions import no_known_concept, read_labelled_mentions, text_concept_pairs
        from sapbert.vocab.input_files import InputReader

        mentions = read_labelled_mentions(settings.mentions, InputReader(), prefix=settings.mentions_prefix)
        if not linker.add_mentions(text_concept_pairs(mentions)):
            raise no_known_concept(
                mentions, settings.index, table=settings.mentions, option="--mentions-prefix"
            )
    bundled = ", ".join(linker.name_table.prefixes()).upper() if is_default(settings.index) else ""
    title = settings.title or bundled or name
    return ServedLinker(name, title, linker, resolve_default(settings.index, "index"))
