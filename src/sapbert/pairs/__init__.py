"""PAIRS: two names of one concept, ready for training."""
