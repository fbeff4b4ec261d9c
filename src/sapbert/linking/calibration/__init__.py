"""Calibration: from scores to the probability that the best candidate is correct."""
