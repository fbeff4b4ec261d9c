"""One module per vocabulary format."""
