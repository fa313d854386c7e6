"""Attention over sampled keys inside a transformers model."""
