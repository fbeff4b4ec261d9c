"""A small HTML page about one concept, which OpenRefine shows in a frame next to a candidate.

Names come from third-party files, so every text is escaped, and the page may neither load nor run anything.
"""

from __future__ import annotations

import base64
import hashlib
from html import escape
from typing import Final

from sapbert.service.schemas import Concept

WIDTH, HEIGHT = 400, 220
_MAX_NAMES = 12
"""Names on the page."""
_STYLE = (
    ":root{color-scheme:light dark}body{font:14px/1.4 system-ui,sans-serif;margin:10px}"
    "h1{font-size:16px;margin:0}p{margin:4px 0}code{font-size:12px}ul{margin:4px 0;padding-left:18px}"
)
_DIGEST = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
HEADERS: Final = {
    # No `frame-ancestors`: any page may embed a preview.
    "Content-Security-Policy": "default-src 'none'; base-uri 'none'; form-action 'none'; "
    f"style-src 'sha256-{_DIGEST}'",
}


def page(concept: Concept) -> str:
    """Return the page of a concept."""
    names = "".join(f"<li>{escape(name.name)}</li>" for name in concept.names[:_MAX_NAMES])
    title = escape(concept.preferred_name)
    more = concept.name_count - min(len(concept.names), _MAX_NAMES)
    types = f"<p>{escape(', '.join(concept.types))}</p>" if concept.types else ""
    rest = f"<p>and {more:,} more</p>" if more > 0 else ""
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}</title>'
        f"<style>{_STYLE}</style><h1>{title}</h1>"
        f"<p><code>{escape(concept.concept_id)}</code></p>{types}<ul>{names}</ul>{rest}</html>"
    )
