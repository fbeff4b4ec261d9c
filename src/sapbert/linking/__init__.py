"""LINK: mentions become concepts."""
