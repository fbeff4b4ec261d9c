"""Open vocabularies from their official addresses."""
