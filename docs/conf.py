"""Settings of the documentation site; `make docs` builds it with `sphinx-build -W`."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "_ext"))

from sapbert.version import __version__

project = "sapbert"
author = "The sapbert maintainers"
copyright = author  # noqa: A001  # the name that Sphinx reads
release = version = __version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "command_pages",
]
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = f"sapbert {release}"
html_static_path: list[str] = []

myst_enable_extensions = ["deflist", "fieldlist"]
myst_heading_anchors = 3

autodoc_typehints = "description"
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
python_use_unqualified_type_names = True
suppress_warnings = ["ref.python"]  # several classes have an attribute of the same name
default_role = "code"  # single backticks in docstrings
