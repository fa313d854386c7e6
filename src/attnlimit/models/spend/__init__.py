"""Thinned attention inside the model, and what it does to the output."""
