"""The HTTP service: a JSON API, OpenRefine reconciliation, a review page, and tools for language models."""
