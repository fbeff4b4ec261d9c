"""Evaluate rankers on benchmarks, compare systems and analyse errors."""
