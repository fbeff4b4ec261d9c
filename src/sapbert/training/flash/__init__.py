"""Train a flash encoder: a table of feature vectors, learned by self-alignment without a transformer."""
