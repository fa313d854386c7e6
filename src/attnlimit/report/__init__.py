"""Figures and pages from results; it knows neither runs nor experiments."""
