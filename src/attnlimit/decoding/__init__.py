"""Fast decoding: kernels that read few keys of a cache."""
