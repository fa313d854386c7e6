"""Scores made sharp: hardmax, cooling, and schedules of sharpness."""
