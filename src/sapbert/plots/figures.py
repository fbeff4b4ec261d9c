"""Style and writing of all figures.

matplotlib is used without pyplot, which has global state and may require a display.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePath
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

from sapbert.artifacts import create_file, require_free
from sapbert.errors import ConfigError

BLUE, ORANGE, GREY = "#0072B2", "#D55E00", "#555555"
"""Colours that colour-blind readers can distinguish (Okabe and Ito), also when printed in grey."""
COLOURS = (BLUE, ORANGE, "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
"""Okabe and Ito's eight colours except yellow, which is hard to see on white."""
_SUFFIXES = (".png", ".svg", ".pdf")
_STYLE: dict[Any, Any] = {
    "font.size": 11,
    "axes.titlesize": 12,
    "axes.labelcolor": GREY,
    "axes.edgecolor": GREY,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.color": GREY,
    "ytick.color": GREY,
    "legend.frameon": False,
    "legend.fontsize": 10,
    "legend.handlelength": 1.4,
    "legend.columnspacing": 1.2,
    "figure.constrained_layout.h_pad": 0.09,
    "figure.constrained_layout.w_pad": 0.07,
    "figure.titlesize": 13,
    "figure.titleweight": "bold",
    "savefig.dpi": 200,
}


def check_figure_target(target: Path, *, overwrite: bool) -> None:
    """Raise an error if a figure cannot be written to `target`; call it before computing the data."""
    if target.suffix.lower() not in _SUFFIXES:
        raise ConfigError(f"{target}: a figure must be {', '.join(_SUFFIXES[:-1])} or {_SUFFIXES[-1]}")
    require_free(target, overwrite=overwrite)


def short_name(path: str) -> str:
    """Return the last two parts of a path, so that `before/model` and `after/model` differ."""
    return "/".join(PurePath(path).parts[-2:])


@contextmanager
def figure(target: Path, *, size: tuple[float, float], overwrite: bool = False) -> Iterator[Figure]:
    """Provide an empty figure of `size` inches; write it to `target` if the block ends without an error."""
    check_figure_target(target, overwrite=overwrite)
    with mpl.rc_context(_STYLE):
        drawing = Figure(figsize=size, layout="constrained")
        yield drawing
        with create_file(target, overwrite=overwrite) as partial:
            drawing.savefig(partial)
