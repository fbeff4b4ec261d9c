"""Reproduce the tables and figures of the SapBERT paper.

`sweep`, `results_table` and the numbers behind the figures (`projection`, `similarities`) also work with any
other pairs, vocabulary and model: `sapbert sweep` and `sapbert plot` use them.
"""
