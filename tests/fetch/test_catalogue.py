from __future__ import annotations

from urllib.parse import urlsplit

import pytest

from sapbert.cli.vocab.read import app
from sapbert.errors import ConfigError
from sapbert.fetch.catalogue import CATALOGUE, Publication, find_publication


@pytest.mark.parametrize("publication", CATALOGUE, ids=lambda publication: publication.name)
def test_every_publication_has_an_address_and_a_reader(publication: Publication) -> None:
    assert urlsplit(publication.address).scheme == "https"
    assert publication.file
    assert publication.licence
    assert publication.kind in {
        command.callback.__name__ for command in app.registered_commands if command.callback
    }


def test_names_and_files_are_distinct_and_in_order() -> None:
    names = [publication.name for publication in CATALOGUE]
    assert names == sorted(set(names))
    assert len({publication.file for publication in CATALOGUE}) == len(CATALOGUE)


def test_a_name_is_found_in_any_case() -> None:
    assert find_publication("HPO").file == "hp.obo"


def test_an_unknown_name_is_refused_with_a_suggestion() -> None:
    with pytest.raises(ConfigError, match="no vocabulary 'mondoo' to fetch; did you mean 'mondo'"):
        find_publication("mondoo")
