"""Commands that train and export models."""
