"""The fusion ranker: orders the first candidates of a mention by many cheap features."""
