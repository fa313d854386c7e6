"""Sparse-token classifiers trained for real: gradient steps, convex readouts, simulation."""
