"""INDEX: the names of a vocabulary as vectors, and the nearest of them."""
