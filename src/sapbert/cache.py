"""Where this package keeps what can be had again: fetched files, vectors of names.

SAPBERT_HOME says where, else it is the place that the system has for such things. Nothing is made here.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

HOME = "SAPBERT_HOME"


def cache_folder() -> Path:
    """Return the folder."""
    own = os.environ.get(HOME)
    return Path(own).expanduser() if own else _caches() / "sapbert"


def _caches() -> Path:
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches"
    if sys.platform == "win32":
        local = os.environ.get("LOCALAPPDATA")
        return Path(local) if local else Path.home() / "AppData" / "Local"
    own = os.environ.get("XDG_CACHE_HOME")
    return Path(own) if own else Path.home() / ".cache"
