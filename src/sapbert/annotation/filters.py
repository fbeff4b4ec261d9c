"""Which names and concepts are looked for in a text.

Filters are those of `sapbert link`. Without them, two kinds of names are left out that are found too often:
translations, which are other words in English, and abbreviations that several concepts share. Of MeSH, only
types are annotated whose names are mentions more often than ordinary words.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from sapbert.annotation.settings import AnnotateSettings
from sapbert.index.name_table import NameTable
from sapbert.linking.search import FilterMasks, filter_masks

_MESH_TYPES: Final = ("C", "D", "F")
"""Diseases, chemicals and drugs, psychiatry and psychology."""
_MESH_TREES: Final = frozenset("ABCDEFGHIJKLMNVZ")


def annotation_masks(table: NameTable, settings: AnnotateSettings) -> FilterMasks:
    """Return what the filters allow, with defaults for filters that are not given."""
    masks = filter_masks(
        table, settings.types, settings.sources, kinds=settings.kinds, prefixes=settings.prefixes
    )
    allowed = np.ones(len(table.link_concepts), np.bool_) if masks.links is None else masks.links.copy()
    if not settings.kinds:
        allowed &= _expected_names(table)
    if not settings.types and table.types and set(table.types) <= _MESH_TREES:
        allowed &= _expected_concepts(table)[table.link_concepts]
    if allowed.all():
        return masks
    rows = np.logical_or.reduceat(allowed, table.link_offsets[:-1])
    concepts = np.zeros(len(table.concepts), np.bool_)
    concepts[table.link_concepts[allowed]] = True
    return FilterMasks(rows, allowed, concepts, int(rows.sum()))


def _expected_names(table: NameTable) -> NDArray[np.bool_]:
    """Return for each link whether its name is expected in English text."""
    expected = np.ones(len(table.link_concepts), np.bool_)
    if "translation" in table.kinds:
        expected &= table.link_kinds != table.kinds.index("translation")
    if "abbreviation" in table.kinds:
        starts = table.link_offsets[:-1]
        # Concepts are ascending within a row, so the first and the last differ if there are several.
        several = table.link_concepts[starts] != table.link_concepts[table.link_offsets[1:] - 1]
        of_link = np.repeat(several, np.diff(table.link_offsets))
        expected &= ~(of_link & (table.link_kinds == table.kinds.index("abbreviation")))
    return expected


def _expected_concepts(table: NameTable) -> NDArray[np.bool_]:
    """Return for each concept whether its type is annotated; the top of each tree of MeSH has no type."""
    wanted = np.array([kind in _MESH_TYPES for kind in table.types], np.bool_)
    before = np.concatenate([[0], np.cumsum(wanted[table.type_numbers])])
    has_wanted = np.diff(before[table.type_offsets]) > 0
    expected: NDArray[np.bool_] = has_wanted | (np.diff(table.type_offsets) == 0)
    return expected
