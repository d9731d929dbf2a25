"""The segment files of a log with their indexes, from creation to deletion."""
