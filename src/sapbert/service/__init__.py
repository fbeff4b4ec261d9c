"""A linker as a service: HTTP, the reconciliation protocol of OpenRefine, and tools for language models."""
