"""Input of annotation: texts from files and tables, corpora with annotations."""
