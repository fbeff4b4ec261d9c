"""ENCODE: names become vectors."""
