"""Commands that evaluate, compare, plot and reproduce."""
