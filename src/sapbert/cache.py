r"""The folder for files that can be downloaded or computed again: fetched vocabularies, vectors of names.

The environment variable SAPBERT_HOME sets it. Otherwise it is the user's cache folder as platformdirs knows
it: `~/.cache/sapbert` on Linux (or below XDG_CACHE_HOME), `~/Library/Caches/sapbert` on macOS,
`%LOCALAPPDATA%\sapbert` on Windows. The folder is not created here.
"""

from __future__ import annotations

import os
from pathlib import Path

from platformdirs import user_cache_path

VARIABLE = "SAPBERT_HOME"


def cache_folder() -> Path:
    """Return the cache folder of this package."""
    folder = os.environ.get(VARIABLE)
    # Without `opinion=False` platformdirs would add a folder `Cache` on Windows.
    return Path(folder).expanduser() if folder else user_cache_path("sapbert", appauthor=False, opinion=False)
