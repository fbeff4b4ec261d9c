"""Build an HTML page in a single file, which can be mailed, archived and opened offline.

Text of a corpus or a vocabulary may contain anything, including markup. Callers escape the text of the body.
Data for a script is JSON in a block that browsers do not run, and scripts insert it as text. As a second line
of defence, a content security policy allows only our own style and script, by digest: injected code does not
run, and nothing is loaded from other servers.
"""

from __future__ import annotations

import hashlib
import json
from base64 import b64encode
from html import escape
from importlib.resources import files

_DIRECTIVES = "default-src 'none'; base-uri 'none'; form-action 'none'"


def document(title: str, body: str, *, script: str | None = None, data: object = None) -> str:
    """Return a page with a title and a `body`, which is HTML.

    `script` is the name of a file in this folder, without `.js`; it reads `data` from the element `#data`.
    """
    style = _file("style.css")
    policy = f"{_DIRECTIVES}; style-src '{_digest(style)}'"
    scripts = ""
    if script is not None:
        code = _file(f"{script}.js")
        policy += f"; script-src '{_digest(code)}'"
        scripts = (
            f'<script type="application/json" id="data">{_embed_json(data)}</script>\n'
            f"<script>{code}</script>\n"
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


def _embed_json(data: object) -> str:
    """Return JSON that cannot close its script element: every `<` is escaped."""
    return json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")
