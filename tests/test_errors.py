"""What error messages suggest."""

from __future__ import annotations

from sapbert.errors import suggestion


def test_a_misspelled_name_suggests_the_most_similar_known_one() -> None:
    assert suggestion("mondoo", ["mesh", "mondo"]) == "; did you mean 'mondo'?"


def test_case_is_ignored() -> None:
    assert suggestion("sdui", ["SDUI", "CODE"]) == "; did you mean 'SDUI'?"


def test_several_names_can_be_suggested() -> None:
    text = suggestion("T04", ["T047", "T046", "A1"], limit=3)
    assert sorted(text.removeprefix("; did you mean ").removesuffix("?").split(" or ")) == [
        "'T046'",
        "'T047'",
    ]


def test_nothing_is_suggested_if_nothing_is_similar() -> None:
    assert suggestion("xyz", ["mesh", "mondo"]) == ""
    assert suggestion("mesh", []) == ""
