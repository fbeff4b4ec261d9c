"""Output formats of annotations."""
