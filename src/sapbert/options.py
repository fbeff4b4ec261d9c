"""What a settings field adds to its command-line option.

A settings dataclass declares each setting once: name, type, default, and a docstring below the field.
`cli.options` makes a command-line option of each field. `Option` adds what these four cannot express:

    dimensions: Annotated[int | None, Option(min=1, default="all")] = None
    \"\"\"Stored dimensions per vector.\"\"\"
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """How a settings field appears on the command line; every attribute is optional."""

    flags: tuple[str, ...] = ()
    """Flags instead of `--field-name`, which loses its final s if the field takes several values."""
    metavar: str | None = None
    """Placeholder of the value in --help."""
    min: float | None = None
    """Smallest value the command line accepts."""
    max: float | None = None
    """Largest value the command line accepts."""
    default: str | None = None
    """Default shown in --help for a field whose default is None."""
    hidden: bool = False
    """True for a field that is set by code only."""
