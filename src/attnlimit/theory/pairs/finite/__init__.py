"""Two queries over the same n of finitely many tokens: the mean output, and its error."""
