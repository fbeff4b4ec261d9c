"""Settings of the HTTP server, which are options of `sapbert serve`; imports nothing heavy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from sapbert.options import Option


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """How the service is started; every field is also an option of `sapbert serve`."""

    host: str = "127.0.0.1"
    """Address to listen on. Any other than the default needs a key or --without-keys."""
    port: Annotated[int, Option(min=0, max=65535)] = 8000
    """Port to listen on; 0 selects a free one."""
    workers: Annotated[int, Option(min=1)] = 1
    """Number of processes; they share the index in memory."""
    threads: Annotated[int | None, Option(min=1, default="cores / workers")] = None
    """CPU threads of the encoder, per worker."""
    without_keys: bool = False
    """Accept requests from other machines without a key."""
    log_mentions: bool = False
    """Write mentions to the log; they may be patient data."""
