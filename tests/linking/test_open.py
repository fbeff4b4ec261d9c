"""Linking from an index on disk, as `sapbert index` writes it."""

from __future__ import annotations

from pathlib import Path

import pytest

from sapbert.index.build import IndexSettings, build_index
from sapbert.index.folder import Kind, open_index
from sapbert.index.vectors import Precision
from sapbert.linking.linker import Linker, LinkSettings
from sapbert.linking.search import DenseSearch
from tests.index.conftest import NgramEncoder, write
from tests.linking.conftest import FACTS, ROWS, bench_of

MENTIONS = ["hart atack", "COLD", "", "pain in the chest", "low temp"]


@pytest.mark.parametrize("kind", Kind)
@pytest.mark.parametrize("wanted", [LinkSettings(), LinkSettings(prefixes=("hp",), exact=False)])
def test_an_index_on_disk_answers_as_one_in_memory(tmp_path: Path, kind: Kind, wanted: LinkSettings) -> None:
    encoder = NgramEncoder(256)
    (tmp_path / "encoder").mkdir()
    (tmp_path / "encoder" / "model").write_text("trigrams")
    vocabulary = write(tmp_path / "vocabulary", ROWS, FACTS)
    settings = IndexSettings(kind=kind, precision=Precision.FP32)
    build_index(vocabulary, encoder, tmp_path / "encoder", tmp_path / "index", settings)

    index, entries, manifest = open_index(tmp_path / "index")
    linker = Linker(encoder, DenseSearch(index), entries, fingerprint=manifest.fingerprint)

    in_memory = bench_of(tmp_path / "bench", ROWS, FACTS, encoder).linker
    found = linker.link(MENTIONS, k=3, settings=wanted)
    expected = in_memory.link(MENTIONS, k=3, settings=wanted)
    assert len(found[0]) == (3 if not wanted.prefixes else 2)
    for own, other in zip(found, expected, strict=True):
        assert [(c.concept, c.name, c.how) for c in own] == [(c.concept, c.name, c.how) for c in other]
        assert [c.score for c in own] == pytest.approx([c.score for c in other], abs=2e-6)
