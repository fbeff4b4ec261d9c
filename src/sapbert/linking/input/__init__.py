"""Input of linking: mentions from lists, lines and tables."""
