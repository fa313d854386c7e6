"""How many instances of a bag are enough for an attention pooling, by the laws of sampled keys."""
