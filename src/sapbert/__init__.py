"""From any biomedical vocabulary to a working entity linker.

Names are imported when first used, so that `import sapbert` costs nothing and
`import sapbert.training` works where polars is not installed.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from sapbert.errors import SapbertError
from sapbert.version import __version__

if TYPE_CHECKING:
    from sapbert.linking.candidate import NIL, Candidate
    from sapbert.linking.linker import Linker
    from sapbert.linking.settings import LinkSettings
    from sapbert.linking.shortcut import link
    from sapbert.pairs.artifact import Pairs
    from sapbert.vocab.vocabulary import Concept, Vocabulary

__all__ = [
    "NIL",
    "Candidate",
    "Concept",
    "LinkSettings",
    "Linker",
    "Pairs",
    "SapbertError",
    "Vocabulary",
    "__version__",
    "link",
]

_HOME = {
    "NIL": "sapbert.linking.candidate",
    "Candidate": "sapbert.linking.candidate",
    "Concept": "sapbert.vocab.vocabulary",
    "LinkSettings": "sapbert.linking.settings",
    "Linker": "sapbert.linking.linker",
    "Pairs": "sapbert.pairs.artifact",
    "Vocabulary": "sapbert.vocab.vocabulary",
    "link": "sapbert.linking.shortcut",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'sapbert' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)
