"""Log JSON lines to standard error.

A mention may be patient data. So no text of a request is logged without `--log-mentions`: not in URLs (only
the route is logged), not in messages of unexpected errors (only their type and traceback locations are
logged).
"""

from __future__ import annotations

import json
import logging
import traceback
from datetime import UTC, datetime
from typing import Any, Final

LOGGER: Final = logging.getLogger("sapbert.service")
_FIELDS = "fields"
"""Attribute of a log record with the fields to write."""


class JsonFormatter(logging.Formatter):
    """Formats a record as one line of JSON; `texts` includes messages of errors."""

    def __init__(self, *, texts: bool) -> None:
        super().__init__()
        self._texts = texts

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        content: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "event": record.getMessage(),
            **getattr(record, _FIELDS, {}),
        }
        if record.exc_info and record.exc_info[1] is not None:
            content.update(_error_fields(record.exc_info[1], texts=self._texts))
        return json.dumps(content, ensure_ascii=False, default=str)


def log(event: str, *, error: BaseException | None = None, fields: dict[str, Any] | None = None) -> None:
    """Log an event; with an `error` at level ERROR."""
    level = logging.INFO if error is None else logging.ERROR
    LOGGER.log(level, event, exc_info=error, extra={_FIELDS: fields or {}})


def logging_config(*, texts: bool) -> dict[str, Any]:
    """Return a configuration for `logging.config` with one formatter for the service and the web server."""
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"json": {"()": JsonFormatter, "texts": texts}},
        "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "json"}},
        "loggers": {
            name: {"handlers": ["stderr"], "level": "INFO", "propagate": False}
            for name in (LOGGER.name, "uvicorn.error")
        },
    }


def _error_fields(error: BaseException, *, texts: bool) -> dict[str, Any]:
    frames = traceback.extract_tb(error.__traceback__)
    content: dict[str, Any] = {
        "error": type(error).__name__,
        "at": [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames],
    }
    if texts:
        content["message"] = str(error)
    return content
