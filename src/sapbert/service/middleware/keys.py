"""Create and recognise API keys.

The configuration stores the SHA-256 of a key, so reading it does not give access. A key has 256 random bits:
it cannot be guessed from a dictionary, and a slow password hash would only make a denial of service easier.
Digests are compared in constant time, and with all keys, so that the response time reveals nothing.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Mapping

from sapbert.service.settings import KeySettings

_KEY_PREFIX = "sapbert_"
"""Lets secret scanners recognise a key that was published by mistake."""


def make_key() -> tuple[str, str]:
    """Return a new key and its digest."""
    key = _KEY_PREFIX + secrets.token_urlsafe(32)
    return key, _digest(key)


def owner_of(key: str, keys: Mapping[str, KeySettings]) -> str | None:
    """Return the name of a key in the configuration, or None if it is unknown."""
    digest = _digest(key)
    owner = None
    for name, settings in keys.items():
        if hmac.compare_digest(digest, settings.sha256):
            owner = name
    return owner


def _digest(key: str) -> str:
    return hashlib.sha256(key.encode(errors="replace")).hexdigest()
