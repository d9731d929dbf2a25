"""The Spark session of a pipeline, and what its user sees: progress, result and failure."""
