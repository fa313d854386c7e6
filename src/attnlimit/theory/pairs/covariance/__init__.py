"""Two queries over the same n keys: the covariance of all outputs, and its error."""
