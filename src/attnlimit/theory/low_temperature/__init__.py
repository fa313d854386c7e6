"""Sharp scores: the hard maximum, and the best sharpness at each n."""
