"""The folder of an exported encoder: `sapbert.json` with its kind and the checksum of each file.

Many model folders on the hub have an `onnx/` too, but do not say how its vectors are pooled or which weights
it has. Only folders that list their files are opened.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sapbert.encoder.model_folder import SAPBERT_FILE
from sapbert.errors import ArtifactError


def is_exported(folder: Path) -> bool:
    """Return whether `folder` contains an encoder that opens without torch."""
    file = folder / SAPBERT_FILE
    try:
        return file.is_file() and "files" in json.loads(file.read_text(encoding="utf-8"))
    except ValueError:
        return True  # opening it reports the damage


def read_exported(folder: Path) -> dict[str, Any]:
    """Read `sapbert.json` of an exported encoder; other folders are refused."""
    if not folder.is_dir():
        raise ArtifactError(f"{folder}: no such folder")
    file = folder / SAPBERT_FILE
    try:
        content = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    except ValueError as error:
        raise ArtifactError(f"{file} is damaged: {error}; export the encoder again") from error
    if not isinstance(content, dict) or "files" not in content:
        raise ArtifactError(
            f"{folder}: not an exported encoder; export it first: sapbert export {folder} -o OUT"
        )
    return content


def checksum(file: Path) -> str:
    """Return the SHA-256 of a file."""
    with open(file, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def check_files(folder: Path, files: Mapping[str, str], *, verify: bool) -> None:
    """Refuse a folder with a missing file, or with a changed one if `verify`."""
    for name, digest in files.items():
        if not (folder / name).is_file():
            raise ArtifactError(f"{folder} is damaged: {name} is missing; export the encoder again")
        if verify and checksum(folder / name) != digest:
            raise ArtifactError(
                f"{folder} is damaged: {name} does not match its checksum; export the encoder again"
            )
