"""Output formats of links."""
