"""Two queries over the same n keys: the mean of all outputs, and its error."""
