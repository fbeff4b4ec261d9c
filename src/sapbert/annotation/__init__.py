"""Find the concepts of an index in running text."""
