"""How queries, keys and values of every head are taken from a model."""
