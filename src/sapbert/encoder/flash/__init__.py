"""The flash encoder: the vector of a name is a normalized sum of table rows, without a transformer."""
