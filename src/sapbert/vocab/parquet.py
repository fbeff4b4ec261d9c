"""Write Parquet files so that a full disk raises an `OSError`, as it does everywhere else.

polars raises an error of its own, in which the system error is only part of the text.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import polars as pl

_OS_ERROR = re.compile(r"\(os error (\d+)\)")


@contextmanager
def polars_os_errors(path: Path) -> Iterator[None]:
    """Convert a polars error about writing `path` into the `OSError` that caused it."""
    try:
        yield
    except pl.exceptions.PolarsError as error:
        match = _OS_ERROR.search(str(error))
        if match is None:
            raise
        number = int(match[1])
        raise OSError(number, os.strerror(number), str(path)) from error
