"""A cache of linked mentions, limited by the number of candidates it stores."""

from __future__ import annotations

from collections import OrderedDict
from threading import Lock

from sapbert.linking.candidate import Candidate
from sapbert.linking.settings import LinkSettings

MAX_CANDIDATES = 1 << 18
"""Candidates stored, about 80 MB; a mention without candidates counts as one."""
_MAX_CHARACTERS = 200
"""Longer mentions are unlikely to repeat and are not stored."""


class CandidateCache:
    """Candidates by folded mention and settings; the oldest entries are dropped first. Thread-safe."""

    def __init__(self) -> None:
        self._entries: OrderedDict[tuple[str, LinkSettings], list[Candidate]] = OrderedDict()
        self._size = 0
        self._lock = Lock()

    def get(self, text: str, settings: LinkSettings) -> list[Candidate] | None:
        """Return the stored candidates, or None if the mention is not stored."""
        with self._lock:
            return self._entries.get((text, settings))

    def put(self, text: str, settings: LinkSettings, candidates: list[Candidate]) -> None:
        """Store the candidates of a mention."""
        if len(text) > _MAX_CHARACTERS:
            return
        with self._lock:
            # Two threads may have linked the same mention.
            self._size -= _size(self._entries.pop((text, settings), None))
            self._entries[text, settings] = candidates
            self._size += _size(candidates)
            while self._size > MAX_CANDIDATES:
                self._size -= _size(self._entries.popitem(last=False)[1])

    def clear(self) -> None:
        """Remove all entries."""
        with self._lock:
            self._entries.clear()
            self._size = 0


def _size(candidates: list[Candidate] | None) -> int:
    return 0 if candidates is None else max(len(candidates), 1)
