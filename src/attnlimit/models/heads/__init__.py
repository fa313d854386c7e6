"""What one captured head does: curves, horizons, influence."""
