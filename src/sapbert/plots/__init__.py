"""Figures drawn with matplotlib (the `plot` extra) from data of `evaluation`, `linking` and `paper`."""
