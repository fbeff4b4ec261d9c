"""Logs as JSON, one object a line, on standard error.

A mention may be a patient's words. So no text of a request is written unless the operator asks for it: not
in addresses (only the route is logged), not in messages of unexpected errors (only their kind and where they
arose).
"""

from __future__ import annotations

import json
import logging
import traceback
from datetime import UTC, datetime
from typing import Any, Final

LOGGER: Final = logging.getLogger("sapbert.service")
_OWN = "fields"
"""Attribute of a record that holds what is to be logged."""


class JsonFormatter(logging.Formatter):
    """Writes a record as one line of JSON."""

    def __init__(self, *, texts: bool) -> None:
        super().__init__()
        self._texts = texts

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        content: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "event": record.getMessage(),
            **getattr(record, _OWN, {}),
        }
        if record.exc_info and record.exc_info[1] is not None:
            content.update(_error(record.exc_info[1], texts=self._texts))
        return json.dumps(content, ensure_ascii=False, default=str)


def log(event: str, *, error: BaseException | None = None, fields: dict[str, Any] | None = None) -> None:
    """Log an event, as an error if there is one."""
    level = logging.INFO if error is None else logging.ERROR
    LOGGER.log(level, event, exc_info=error, extra={_OWN: fields or {}})


def logging_config(*, texts: bool) -> dict[str, Any]:
    """Return what `logging.config` needs: everything, of the web server too, through one formatter."""
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


def _error(error: BaseException, *, texts: bool) -> dict[str, Any]:
    frames = traceback.extract_tb(error.__traceback__)
    content: dict[str, Any] = {
        "error": type(error).__name__,
        "at": [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames],
    }
    if texts:
        content["message"] = str(error)
    return content
