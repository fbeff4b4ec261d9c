"""Open the lexicon of an index; make it if the index was built before indexes contained one.

The lexicon of such an index is kept in the cache folder, under the fingerprint of the index, so it is made
once. If the cache cannot be written, it is made in a temporary folder every time.
"""

from __future__ import annotations

import logging
import os
import tempfile
from contextlib import suppress
from pathlib import Path

from sapbert.cache import cache_folder
from sapbert.errors import ArtifactError
from sapbert.index.lexicon.lexicon import LEXICON, VERSION, Lexicon, write_lexicon
from sapbert.index.name_table import NameTable

_logger = logging.getLogger(__name__)


def open_lexicon(index: Path | None, name_table: NameTable, fingerprint: str) -> Lexicon:
    """Open the lexicon of the index at `index`, or the cached one; make one if there is no folder."""
    if index is None:
        return _make_temporary(name_table)
    if (index / LEXICON).is_dir():
        with suppress(ArtifactError):  # written by a version that splits words in another way
            return Lexicon.open(index / LEXICON, names=len(name_table))
    cached = cache_folder() / "lexicons" / f"{fingerprint}-{VERSION}"
    if cached.is_dir():
        return Lexicon.open(cached, names=len(name_table))
    _logger.warning("%s has no lexicon; making one (`sapbert index` makes it with the index)", index)
    return _make(cached, name_table)


def _make(cached: Path, name_table: NameTable) -> Lexicon:
    try:
        cached.parent.mkdir(parents=True, exist_ok=True)
        draft = Path(tempfile.mkdtemp(prefix=f".{cached.name}.", dir=cached.parent))
    except OSError:
        return _make_temporary(name_table)
    write_lexicon(name_table, draft)
    with suppress(OSError):  # another process was faster
        os.rename(draft, cached)
    return Lexicon.open(cached, names=len(name_table))


def _make_temporary(name_table: NameTable) -> Lexicon:
    """Make a lexicon whose files are deleted at once; its arrays are copied to memory."""
    with tempfile.TemporaryDirectory() as folder:
        write_lexicon(name_table, Path(folder))
        mapped = Lexicon.open(Path(folder), names=len(name_table))
        return Lexicon(mapped.keys.copy(), mapped.orders.copy(), mapped.rows.copy(), mapped.filter.copy())
