"""One HTML page with nothing outside it: it can be mailed, kept for years and opened offline.

Text from a corpus or a vocabulary may hold anything, markup too. Words in the body are escaped by whoever
writes them; data for a script travels as JSON in a block that no browser runs, and scripts put it into the
page as text. A content security policy that names our own style and script by digest is the second lock:
whatever slipped in would not run, and nothing can be loaded from elsewhere.
"""

from __future__ import annotations

import hashlib
import json
from base64 import b64encode
from html import escape
from importlib.resources import files

_DIRECTIVES = "default-src 'none'; base-uri 'none'; form-action 'none'"


def document(title: str, body: str, *, script: str | None = None, data: object = None) -> str:
    """Return a page of `body`, which is HTML, under the title.

    `script` is a file beside this one, without `.js`; it finds `data` in the element with the id `data`.
    """
    style = _file("style.css")
    policy = f"{_DIRECTIVES}; style-src '{_digest(style)}'"
    scripts = ""
    if script is not None:
        code = _file(f"{script}.js")
        policy += f"; script-src '{_digest(code)}'"
        scripts = (
            f'<script type="application/json" id="data">{_inert(data)}</script>\n<script>{code}</script>\n'
        )
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        f'<meta name="viewport" content="width=device-width">\n<title>{escape(title)}</title>\n'
        f"<style>{style}</style>\n</head>\n<body>\n<h1>{escape(title)}</h1>\n{body}\n{scripts}</body>\n</html>\n"
    )


def _file(name: str) -> str:
    return (files("sapbert.pages") / name).read_text(encoding="utf-8")


def _digest(content: str) -> str:
    return f"sha256-{b64encode(hashlib.sha256(content.encode()).digest()).decode()}"


def _inert(data: object) -> str:
    """JSON that cannot end the block it stands in: no `<` is left, whatever the names are."""
    return json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")
