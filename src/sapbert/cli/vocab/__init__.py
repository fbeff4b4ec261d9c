"""Commands that fetch, read, merge and show vocabularies and draw pairs."""
