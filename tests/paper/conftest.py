"""The tiny encoder and pairs of the training tests."""

from __future__ import annotations

from tests.training.conftest import one_thread as one_thread
from tests.training.conftest import tiny_base as tiny_base
from tests.training.conftest import tiny_pairs as tiny_pairs
