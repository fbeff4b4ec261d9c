from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from sapbert.arrays import Texts, TextsWriter
from sapbert.errors import ArtifactError
from sapbert.index.spellings import Spellings, SpellingWriter
from sapbert.text import fold

names = st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=12))


def write(folder: Path, texts: list[str], *, piece: int = 1000) -> Spellings:
    folded = [fold(text) for text in texts]
    with TextsWriter(folder / "folded.npy", folder / "folded_offsets.npy") as writer:
        encoded = pl.Series(folded, dtype=pl.String)
        writer.append("".join(folded).encode(), encoded.str.len_bytes().to_numpy())
    with SpellingWriter(folder) as spellings:
        for start in range(0, len(texts), piece):
            part = (pl.Series(each[start : start + piece], dtype=pl.String) for each in (texts, folded))
            spellings.append(*part)
    return Spellings.open(folder, Texts.open(folder, "folded"))


def test_capitals_are_stored_as_bits_and_other_spellings_as_text(tmp_path: Path) -> None:
    texts = [
        "Heart Attack",
        "copd",
        "COPD",
        "pH",
        "Straße",
        "Crohn\u2019s Disease",
        "Болезнь Крона",
        "Ménière",
    ]

    spellings = write(tmp_path, texts)

    assert spellings.span(0, len(texts)) == texts
    assert spellings.take([2, 0]) == ["COPD", "Heart Attack"]
    assert spellings.others.span(0, len(spellings.others)) == ["Straße", "Crohn\u2019s Disease"]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(names, st.integers(1, 5))
@example(["İ", "ß", "ǅ", "ﬁ", "Σίσυφος", "𐐀", "ŉ"], 2)
def test_every_spelling_is_restored(tmp_path: Path, texts: list[str], piece: int) -> None:
    texts = [text for text in texts if fold(text)]
    spellings = write(tmp_path, texts, piece=piece)
    assert [spellings[row] for row in range(len(texts))] == texts


def test_a_file_of_another_length_is_refused(tmp_path: Path) -> None:
    spellings = write(tmp_path, ["Heart Attack", "Cold"])
    (tmp_path / "capitals.npy").unlink()
    np.save(tmp_path / "capitals.npy", np.zeros(1, np.uint8))
    with pytest.raises(ArtifactError, match=r"capitals\.npy is damaged"):
        Spellings.open(tmp_path, spellings.folded)
