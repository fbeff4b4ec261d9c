"""Imported at startup by the processes of the tests: replaces the encoder by one that needs no model."""

from __future__ import annotations

from pathlib import Path

from tests.index.ngrams import NgramEncoder

from sapbert.encoder import open as encoders


def open_ngrams(folder: Path, **_options: object) -> NgramEncoder:
    """Open what `NgramEncoder.copy_to` wrote."""
    return NgramEncoder(int((folder / "dimension.txt").read_text()))


encoders.open_exported = open_ngrams  # type: ignore[assignment]  # a deliberate patch
