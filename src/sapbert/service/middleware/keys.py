"""API keys: who is asking.

A key is 256 random bits, so a plain SHA-256 hides it at rest: there is nothing to guess from a dictionary,
and a slow hash would only let strangers keep the processor busy. Whoever reads the configuration cannot use
the service. Digests are compared in constant time, and all of them, so that nothing is learnt from the time
an answer takes.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Mapping

from sapbert.service.settings import KeySettings

_MARK = "sapbert_"
"""So that scanners recognise a key that was published by mistake."""


def make_key() -> tuple[str, str]:
    """Return a new key and its digest."""
    key = _MARK + secrets.token_urlsafe(32)
    return key, _digest(key)


def owner_of(key: str, keys: Mapping[str, KeySettings]) -> str | None:
    """Return the name under which `key` is known, or None."""
    digest = _digest(key)
    owner = None
    for name, settings in keys.items():
        if hmac.compare_digest(digest, settings.sha256):
            owner = name
    return owner


def _digest(key: str) -> str:
    return hashlib.sha256(key.encode(errors="replace")).hexdigest()
