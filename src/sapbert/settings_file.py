"""Settings dataclasses and the TOML files that set their fields.

Reading is strict: an unknown key, a value of the wrong type or a file that is not TOML is an error. A
settings class may list former names of its fields in a class variable `renamed_settings` (old name → new
name), and former values in `renamed_values` (name → old value → new value); a file that uses one still works
and causes a warning.
"""

from __future__ import annotations

import logging
import tomllib
from collections.abc import Mapping
from dataclasses import fields
from math import isfinite
from pathlib import Path
from types import UnionType
from typing import TYPE_CHECKING, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from sapbert.errors import ConfigError, FormatError, suggestion

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

_UNIONS = (Union, UnionType)
_TYPE_NAMES = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "text",
    Mapping: "a table of numbers",
}
log = logging.getLogger(__name__)
Settings = TypeVar("Settings", bound="DataclassInstance")


def read_toml(path: Path) -> dict[str, Any]:
    """Read any TOML file."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise FormatError(path, None, f"not valid TOML: {error}") from error
    except OSError as error:
        raise FormatError(path, None, f"cannot be read: {error.strerror}") from error


def read_settings_file(path: Path, settings: type[Settings]) -> dict[str, Any]:
    """Read values for fields of `settings` from a TOML file; an unknown key is an error."""
    return known_values(path, read_toml(path), settings)


def known_values(where: Path, values: Mapping[str, Any], settings: type[Settings]) -> dict[str, Any]:
    """Return `values` under the current names of their fields; refuse unknown keys.

    `where` is the file they come from, for messages.
    """
    known = [field.name for field in fields(settings)]
    renamed: Mapping[str, str] = getattr(settings, "renamed_settings", {})
    current: dict[str, Any] = {}
    for key, value in values.items():
        name = renamed.get(key, key)
        if name != key:
            log.warning("%s: the setting %r is now called %r", where, key, name)
        if name not in known:
            raise ConfigError(f"{where}: unknown setting {key!r}{suggestion(key, known)}")
        current[name] = value
    return _current_values(where, current, settings)


def _current_values(where: Path, values: dict[str, Any], settings: type[Settings]) -> dict[str, Any]:
    renamed: Mapping[str, Mapping[str, str]] = getattr(settings, "renamed_values", {})
    for name, by_old in renamed.items():
        old = values.get(name)
        if isinstance(old, str) and old in by_old:
            log.warning("%s: the value %r of %r is now called %r", where, old, name, by_old[old])
            values[name] = by_old[old]
    return values


def combine_settings(
    file_values: Mapping[str, Any], options: Mapping[str, Any], settings: type[Settings]
) -> Settings:
    """Make settings from the values of a file and from options, which take precedence.

    An option that is None was not given. Tables are combined key by key.
    """
    explicit = {name: value for name, value in options.items() if value is not None}
    for name, value in explicit.items():
        if isinstance(value, Mapping) and isinstance(file_values.get(name), Mapping):
            explicit[name] = {**file_values[name], **value}
    return settings(**{**file_values, **explicit})


def check_types(settings: DataclassInstance) -> None:
    """Refuse a value that does not have the type of its field; an integer is accepted as a float."""
    hints = get_type_hints(type(settings))
    for field in fields(settings):
        value = getattr(settings, field.name)
        if not _has_type(value, hints[field.name]):
            raise ConfigError(f"{field.name} is {_type_name(hints[field.name])}; got {value!r}")


def _has_type(value: object, hint: Any) -> bool:
    if get_origin(hint) in _UNIONS:
        return any(_has_type(value, part) for part in get_args(hint))
    if get_origin(hint) is Literal:
        return value in get_args(hint)
    if get_origin(hint) is Mapping:
        return isinstance(value, Mapping) and all(_has_type(part, float) for part in value.values())
    if hint is float:
        return isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)
    return isinstance(value, hint) and (hint is bool or not isinstance(value, bool))


def _type_name(hint: Any) -> str:
    kind = get_args(hint)[0] if get_origin(hint) in _UNIONS else hint
    if get_origin(kind) is Literal:
        return f"one of {', '.join(get_args(kind))}"
    return _TYPE_NAMES[get_origin(kind) or kind]
