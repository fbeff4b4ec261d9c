"""Settings of the service, from a TOML file or for a single index.

Settings are plain dataclasses; pydantic, a dependency of FastAPI, checks the types of the file. Paths are
relative to the file, so that a folder with its configuration can be moved as a whole.

    [linkers.mesh]
    index = "mesh-index"
    calibration = "calibration.json"

    [limits]
    mentions = 10_000

    [keys.alice]
    sha256 = "…"            # printed by `sapbert serve --new-key alice`
    mentions_per_second = 100
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from sapbert.defaults import DEFAULT, is_default
from sapbert.errors import ConfigError, suggestion
from sapbert.service.schemas import validation_message
from sapbert.settings_file import read_toml

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
"""Names appear in URLs, logs and metrics, so they need no escaping in any of these."""
_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkerSettings:
    """One linker of the service: a table `[linkers.NAME]`."""

    index: Path | str
    """Written by `sapbert index`; or `default`, the bundled MeSH index."""
    title: str = ""
    """Title for display; by default the name, and for the bundled index the prefixes of its concepts."""
    calibration: Path | None = None
    """Written by `sapbert calibrate`; adds confidences."""
    sparse_weight: float | None = None
    """Weight of the n-gram score relative to the dense score, in a hybrid index."""
    mentions: Path | None = None
    """TSV with columns mention and concept_ids; these mentions are linked as exact matches."""
    mentions_prefix: str | None = None
    """Prefix of identifiers in `mentions` that have none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits per worker: the table `[limits]`."""

    body_bytes: int = 8 << 20
    """Size of a request body; 413 above."""
    mentions: int = 10_000
    """Mentions per request; 422 above."""
    mention_characters: int = 1_000
    """Length of a mention; 422 above."""
    requests: int = 256
    """Concurrent requests; 503 above."""
    queue_seconds: float = 2.0
    """Expected wait for the encoder when a request arrives; 503 above."""
    seconds: float = 30.0
    """Timeout for the encoder, for a body to arrive, and for a client to read."""

    def __post_init__(self) -> None:
        for limit in fields(self):
            if getattr(self, limit.name) <= 0:
                raise ConfigError(f"limits.{limit.name} must be above 0, got {getattr(self, limit.name)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class KeySettings:
    """An API key and its limits per worker: a table `[keys.NAME]`."""

    sha256: str
    """Digest of the key; the key itself is not stored."""
    mentions_per_second: float | None = None
    """Average rate; 429 above. Requests other than linking count as one mention."""
    requests: int = 64
    """Concurrent requests; 429 above."""

    def __post_init__(self) -> None:
        if not _SHA256.fullmatch(self.sha256):
            raise ConfigError(
                "sha256 must have 64 hexadecimal digits; create a key with sapbert serve --new-key NAME"
            )
        if self.mentions_per_second is not None and not self.mentions_per_second > 0:
            raise ConfigError(f"mentions_per_second must be above 0, got {self.mentions_per_second}")
        if self.requests < 1:
            raise ConfigError(f"requests must be at least 1, got {self.requests}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceSettings:
    """The content of a configuration file."""

    linkers: Mapping[str, LinkerSettings]
    """Linkers by name; the first is the default."""
    keys: Mapping[str, KeySettings] = field(default_factory=dict)
    """API keys by name; without keys, access is open."""
    limits: Limits = field(default_factory=Limits)
    public_url: str | None = None
    """URL of the service behind a proxy, without a trailing slash."""

    def __post_init__(self) -> None:
        if not self.linkers:
            raise ConfigError("no linker is configured; add a table [linkers.NAME] with an index")
        for name in (*self.linkers, *self.keys):
            require_name(name)


def require_name(name: str) -> None:
    """Raise if a name is not valid for a linker or a key."""
    if not _NAME.fullmatch(name):
        raise ConfigError(
            f"{name!r} is not a valid linker or key name; use letters, digits, dots, dashes and underscores"
        )


def load_settings(source: Path | str) -> ServiceSettings:
    """Read a configuration (`.toml`), or make one for an index: a folder (named like it) or `default`."""
    if is_default(source):
        return ServiceSettings(linkers={DEFAULT: LinkerSettings(index=DEFAULT)})
    path = Path(source)
    if path.suffix != ".toml":
        name = re.sub(r"[^A-Za-z0-9._-]+", "-", path.resolve().name).strip("-._")[:64] or "index"
        return ServiceSettings(linkers={name: LinkerSettings(index=path)})
    content = read_toml(path)
    try:
        settings = _parse_settings(content)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from error
    linkers = {name: _resolve_paths(linker, path.parent) for name, linker in settings.linkers.items()}
    return replace(settings, linkers=linkers)


def _resolve_paths(linker: LinkerSettings, folder: Path) -> LinkerSettings:
    return replace(
        linker,
        index=linker.index if is_default(linker.index) else folder / linker.index,
        calibration=linker.calibration and folder / linker.calibration,
        mentions=linker.mentions and folder / linker.mentions,
    )


def _parse_settings(content: dict[str, Any]) -> ServiceSettings:
    """Return the settings of a configuration, or raise with the location of the first error."""
    _refuse_unknown(ServiceSettings, content, "")
    for name, kind in (("linkers", LinkerSettings), ("keys", KeySettings)):
        for key, table in _tables(content, name).items():
            _refuse_unknown(kind, table, f"{name}.{key}.")
    _refuse_unknown(Limits, content.get("limits", {}), "limits.")
    try:
        return TypeAdapter(ServiceSettings).validate_python({"linkers": {}, **content})
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raise ConfigError(validation_message(first)) from error


def _tables(content: dict[str, Any], name: str) -> dict[str, Any]:
    tables = content.get(name, {})
    return tables if isinstance(tables, dict) else {}


def _refuse_unknown(kind: type[Any], table: object, where: str) -> None:
    known = [setting.name for setting in fields(kind)]
    for key in table if isinstance(table, dict) else ():
        if key not in known:
            path = f"{where}{key}"
            raise ConfigError(f"unknown setting {path!r}{suggestion(path, [where + name for name in known])}")
