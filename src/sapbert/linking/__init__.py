"""Linking: from mentions to concepts of an index."""
