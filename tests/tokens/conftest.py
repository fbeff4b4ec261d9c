"""The setup of the encoder tests: no hub, one torch thread."""

from __future__ import annotations

from tests.encoder.conftest import one_thread as one_thread
