"""What is served and how much of it, from a TOML file or from one index alone.

Settings are plain dataclasses; pydantic, which the web framework brings, checks what the file says against
their types. Paths are relative to the file, so that a folder with its configuration can be moved as a whole.

    [linkers.mesh]
    index = "mesh-index"
    calibration = "calibration.json"

    [limits]
    mentions = 10_000

    [keys.alice]
    sha256 = "…"            # made by `sapbert serve --new-key alice`
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
from sapbert.service.schemas import fault_of
from sapbert.settings_file import read_toml

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
"""What is part of an address, a log and a metric must be plain."""
_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkerSettings:
    """One linker of the service: a table `[linkers.NAME]`."""

    index: Path | str
    """Written by `sapbert index`; or the word `default`, for the one that comes with the package."""
    title: str = ""
    """What people see; by default the name."""
    calibration: Path | None = None
    """Written by `sapbert calibrate`: adds confidence."""
    sparse_weight: float | None = None
    """What spelling counts, in a hybrid index."""
    mentions: Path | None = None
    """TSV with columns mention and concept_ids, to answer exactly."""
    mentions_prefix: str | None = None
    """For identifiers in it without one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one worker takes on: the table `[limits]`."""

    body_bytes: int = 8 << 20
    """Largest request; more is answered 413."""
    mentions: int = 10_000
    """Most mentions of a request; more is answered 422."""
    mention_characters: int = 1_000
    """Longest mention; more is answered 422."""
    requests: int = 256
    """Requests worked on at once; more are answered 503 at once."""
    queued_mentions: int = 2_048
    """Mentions waiting for the encoder; a request that finds more waiting is answered 503."""
    seconds: float = 30.0
    """Longest wait for the encoder, for a body to arrive, or for a client to read on."""

    def __post_init__(self) -> None:
        for limit in fields(self):
            if getattr(self, limit.name) <= 0:
                raise ConfigError(f"limits.{limit.name} must be above 0, got {getattr(self, limit.name)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class KeySettings:
    """Who may ask, and how much, of each worker: a table `[keys.NAME]`."""

    sha256: str
    """Digest of the key, which itself is written nowhere."""
    mentions_per_second: float | None = None
    """On average; more is answered 429. Any other request counts as a mention."""
    requests: int = 64
    """Requests at once; more are answered 429."""

    def __post_init__(self) -> None:
        if not _SHA256.fullmatch(self.sha256):
            raise ConfigError("sha256 has 64 digits of 0-9a-f; make one: sapbert serve --new-key NAME")
        if self.mentions_per_second is not None and not self.mentions_per_second > 0:
            raise ConfigError(f"mentions_per_second must be above 0, got {self.mentions_per_second}")
        if self.requests < 1:
            raise ConfigError(f"requests must be at least 1, got {self.requests}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceSettings:
    """All that a configuration file says."""

    linkers: Mapping[str, LinkerSettings]
    """By name; the first answers where none is named."""
    keys: Mapping[str, KeySettings] = field(default_factory=dict)
    """By the name of who has it; none: everybody may ask."""
    limits: Limits = field(default_factory=Limits)
    public_url: str | None = None
    """Where clients reach the service, if a proxy stands before it; without a slash at the end."""

    def __post_init__(self) -> None:
        if not self.linkers:
            raise ConfigError("a service needs a linker: a table [linkers.NAME] with an index")
        for name in (*self.linkers, *self.keys):
            require_name(name)


def require_name(name: str) -> None:
    """Refuse what cannot be the name of a linker or of a key."""
    if not _NAME.fullmatch(name):
        raise ConfigError(f"{name!r} is no name for a linker or a key: letters, digits, dots and dashes are")


def settings_of(what: Path | str) -> ServiceSettings:
    """Read a configuration (`.toml`), or make one for an index: `default`, or a folder, called as that is."""
    if is_default(what):
        return ServiceSettings(linkers={DEFAULT: LinkerSettings(index=DEFAULT)})
    path = Path(what)
    if path.suffix != ".toml":
        name = re.sub(r"[^A-Za-z0-9._-]+", "-", path.resolve().name).strip("-._")[:64] or "index"
        return ServiceSettings(linkers={name: LinkerSettings(index=path)})
    content = read_toml(path)
    try:
        settings = _checked(content)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from error
    beside = path.parent
    linkers = {name: _from(beside, linker) for name, linker in settings.linkers.items()}
    return replace(settings, linkers=linkers)


def _from(folder: Path, linker: LinkerSettings) -> LinkerSettings:
    return replace(
        linker,
        index=linker.index if is_default(linker.index) else folder / linker.index,
        calibration=linker.calibration and folder / linker.calibration,
        mentions=linker.mentions and folder / linker.mentions,
    )


def _checked(content: dict[str, Any]) -> ServiceSettings:
    """Make settings of a whole configuration, or say what is wrong with it and where."""
    _refuse_unknown(ServiceSettings, content, "")
    for name, part in (("linkers", LinkerSettings), ("keys", KeySettings)):
        for key, table in _tables(content, name).items():
            _refuse_unknown(part, table, f"{name}.{key}.")
    _refuse_unknown(Limits, content.get("limits", {}), "limits.")
    try:
        return TypeAdapter(ServiceSettings).validate_python({"linkers": {}, **content})
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raise ConfigError(fault_of(first)) from error


def _tables(content: dict[str, Any], name: str) -> dict[str, Any]:
    tables = content.get(name, {})
    return tables if isinstance(tables, dict) else {}


def _refuse_unknown(kind: type[Any], table: object, where: str) -> None:
    known = [setting.name for setting in fields(kind)]
    for key in table if isinstance(table, dict) else ():
        if key not in known:
            near = suggestion(f"{where}{key}", [f"{where}{name}" for name in known])
            raise ConfigError(f"there is no setting {where}{key}{near}")
