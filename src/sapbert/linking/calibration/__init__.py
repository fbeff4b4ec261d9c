"""Calibrated confidence: fit it, store it, apply it."""
