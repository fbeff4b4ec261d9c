"""How good: evaluation sets, rankers measured on them, and runs compared."""
