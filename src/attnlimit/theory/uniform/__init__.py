"""Uniform convergence on a ball of queries."""
