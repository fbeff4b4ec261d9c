"""The lexicon of an index: a hash of the words of each name, to find names in running text."""
