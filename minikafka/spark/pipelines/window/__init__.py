"""The window pipeline: counts of records per window of time."""
