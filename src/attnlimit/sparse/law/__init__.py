"""What sparse-token classifiers reach, exactly: oracle, alignment, readout, capacity."""
