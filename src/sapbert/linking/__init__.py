"""LINK: mentions to concepts."""
