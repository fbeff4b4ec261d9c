"""Settings of short runs."""

from __future__ import annotations

from sapbert.training.settings import FlashSettings

SHORT = {
    "features": {"word": 8, "pair": 6, "characters-4": 8},
    "dimension": 8,
    "batch_size": 16,
    "steps": 12,
    "held_out": 5,
    "evaluate_every": 5,
    "checkpoint_every": 4,
}


def short(**changes: object) -> FlashSettings:
    """Settings of a run of some milliseconds."""
    return FlashSettings(**{**SHORT, **changes})  # type: ignore[arg-type]
