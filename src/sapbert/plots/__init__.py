"""Figures, drawn with matplotlib (the `plot` extra) from numbers that other stages compute."""
