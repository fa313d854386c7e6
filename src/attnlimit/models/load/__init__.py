"""Where models and texts come from."""
