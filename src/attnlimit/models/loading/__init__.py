"""Loading of models from packages, folders and the hub."""
