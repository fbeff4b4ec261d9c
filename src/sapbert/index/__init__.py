"""INDEX: vectors of the names of a vocabulary, and nearest-neighbour search."""
