"""Parquet files, written so that a full disk is an `OSError`, as it is everywhere else.

polars makes an error of its own of it, which tells only in words what the system said.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import polars as pl

_NUMBER = re.compile(r"\(os error (\d+)\)")


@contextmanager
def polars_os_errors(path: Path) -> Iterator[None]:
    """Turn what polars raises when the system refuses to write `path` into what Python raises then."""
    try:
        yield
    except pl.exceptions.PolarsError as error:
        told = _NUMBER.search(str(error))
        if told is None:
            raise
        number = int(told[1])
        raise OSError(number, os.strerror(number), str(path)) from error
