from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

import pytest

from sapbert.fetch import catalogue
from tests.cli.conftest import Sapbert, refused
from tests.conftest import GOLDEN
from tests.fetch.conftest import Server, server

__all__ = ["server"]
OBO = next((GOLDEN / "obo").glob("*.obo"))


@pytest.fixture
def published(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Server:
    """The catalogue's HPO, on a local server."""
    server.content = OBO.read_bytes()
    own = replace(catalogue.find_publication("hpo"), address=server.address)
    monkeypatch.setattr(catalogue, "CATALOGUE", (own,))
    monkeypatch.setenv("SAPBERT_HOME", str(tmp_path / "home of mine"))
    return server


def test_a_vocabulary_is_fetched_and_the_command_that_reads_it_works(
    sapbert: Sapbert, published: Server, tmp_path: Path
) -> None:
    done = sapbert("fetch", "hpo")

    path = tmp_path / "home of mine" / "vocabularies" / "hp.obo"
    assert (done.code, done.out) == (0, f"{path}\n")
    assert path.read_bytes() == published.content
    digest = hashlib.sha256(published.content).hexdigest()
    assert done.err.splitlines() == [
        "Human Phenotype Ontology",
        f"  from     {published.address}",
        "  licence  free with credit, unchanged: hpo.jax.org/license",
        "  size     0.0 MB",
        f"  downloaded  (SHA-256 {digest})",
        f"next: sapbert read obo '{path}' -o hpo",
    ]
    assert sapbert("read", "obo", path, "-o", tmp_path / "hpo").code == 0


def test_an_unchanged_file_is_not_downloaded_again(sapbert: Sapbert, published: Server) -> None:
    first, second = sapbert("fetch", "hpo"), sapbert("fetch", "hpo")

    assert second.out == first.out
    assert "already downloaded, unchanged" in second.err


def test_without_a_name_all_vocabularies_are_listed(sapbert: Sapbert, published: Server) -> None:
    before = sapbert("fetch")
    sapbert("fetch", "hpo")
    after = sapbert("fetch")

    head, row = before.out.splitlines()
    assert head.split() == ["name", "vocabulary", "licence", "downloaded"]
    assert row.split()[:4] == ["hpo", "Human", "Phenotype", "Ontology"]
    assert after.out.splitlines()[1] == f"{row}  yes"


def test_a_missing_file_and_an_unknown_name_are_one_line(sapbert: Sapbert, published: Server) -> None:
    published.codes = [404]
    assert "the server responded 404 Not Found" in sapbert("fetch", "hpo").err
    assert "no vocabulary 'snomed' to fetch" in refused(sapbert("fetch", "snomed"))
