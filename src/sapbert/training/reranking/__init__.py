"""Training of a cross-encoder that reranks candidates."""
