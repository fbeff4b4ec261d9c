"""What comes with the package: an encoder, the MeSH vocabulary, its index and a calibration of that.

Here they are only found; whoever needs one opens it as it opens any other, so that `default` can be said
wherever a folder is asked for. Unlike others the index holds no encoder: that lies beside it, and need not be
there twice. `scripts/build_defaults.py` makes all four.

SAPBERT_DEFAULTS names a folder to use instead, of the same shape: a house that has a better default than MeSH
sets it once for everybody.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final, Literal

from sapbert.errors import ArtifactError

DEFAULT: Final = "default"
"""What to say in place of a folder."""
HOME: Final = "SAPBERT_DEFAULTS"
CALIBRATION: Final = "calibration.json"
What = Literal["encoder", "vocabulary", "index"]


def resolve_default(given: Path | str, what: What) -> Path:
    """Return the folder that `given` names: its own, or the one that came with the package."""
    return bundled_folder(what) if is_default(given) else Path(given)


def is_default(given: Path | str) -> bool:
    """Tell whether `given` asks for what came with the package; a path never does, nor does `./default`."""
    return given == DEFAULT


def bundled_folder(what: What) -> Path:
    """Return the folder that came with the package."""
    folder = _home() / what
    if not folder.is_dir():
        raise ArtifactError(
            f"{folder}: no default {what} is installed; install sapbert anew, or name your own"
        )
    return folder


def bundled_calibration() -> Path | None:
    """Return how sure the answers of the default index are, None where nobody has measured it."""
    file = _home() / CALIBRATION
    return file if file.is_file() else None


def _home() -> Path:
    own = os.environ.get(HOME)
    return Path(own).expanduser() if own else Path(__file__).parent
