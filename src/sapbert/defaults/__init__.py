"""The artifacts bundled with the package: two encoders, the MeSH vocabulary, its index and its calibration.

This module only finds them; callers open them like any other artifact, so `default` can be given wherever a
folder is expected. The default encoder is a flash encoder; `open-mini`, a transformer with 6 layers, is the
other. Unlike other indexes, the bundled one contains no encoder, because the encoder is beside it.
`scripts/build_defaults.py` builds them.

The environment variable SAPBERT_DEFAULTS names another folder with the same layout, for organizations whose
default is not MeSH.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final, Literal

from sapbert.errors import ArtifactError

DEFAULT: Final = "default"
"""Name that selects a bundled artifact instead of a folder."""
OPEN_MINI: Final = "open-mini"
"""Name that selects the bundled transformer instead of a folder."""
VARIABLE: Final = "SAPBERT_DEFAULTS"
CALIBRATION: Final = "calibration.json"
Kind = Literal["encoder", "open-mini", "vocabulary", "index"]


def resolve_default(path: Path | str, kind: Kind) -> Path:
    """Return `path`, or the bundled folder if it is the word `default` or, for an encoder, `open-mini`."""
    if kind == "encoder" and path == OPEN_MINI:
        return bundled_folder("open-mini")
    return bundled_folder(kind) if is_default(path) else Path(path)


def is_default(path: Path | str) -> bool:
    """Return whether `path` is the string `default`; a `Path` object or `./default` is not."""
    return path == DEFAULT


def bundled_folder(kind: Kind) -> Path:
    """Return the bundled folder of this kind."""
    folder = _folder() / kind
    if not folder.is_dir():
        raise ArtifactError(f"{folder}: no default {kind} is installed; reinstall sapbert or give a path")
    return folder


def bundled_calibration() -> Path | None:
    """Return the calibration file of the bundled index; None if there is none."""
    file = _folder() / CALIBRATION
    return file if file.is_file() else None


def _folder() -> Path:
    folder = os.environ.get(VARIABLE)
    return Path(folder).expanduser() if folder else Path(__file__).parent
