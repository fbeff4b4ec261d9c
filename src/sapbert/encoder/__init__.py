"""ENCODE: turn names into vectors."""
