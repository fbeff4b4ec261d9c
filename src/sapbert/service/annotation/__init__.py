"""Annotate running text over HTTP."""
