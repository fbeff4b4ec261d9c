"""Evaluation sets: their formats and how they are built."""
