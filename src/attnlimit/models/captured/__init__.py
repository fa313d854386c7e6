"""Capturing of queries, keys and values of every head of a model."""
