"""Poolings of bags as scikit-learn estimators: fit, predict, and say what was looked at."""
