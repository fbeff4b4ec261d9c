"""The setup of the encoder and training tests: no Hugging Face hub, one torch thread, tiny data."""

from __future__ import annotations

from tests.encoder.conftest import exported as exported
from tests.encoder.conftest import one_thread as one_thread
from tests.training.conftest import tiny_base as tiny_base
from tests.training.conftest import tiny_pairs as tiny_pairs
