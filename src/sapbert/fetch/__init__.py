"""Download open vocabularies from their publishers."""
