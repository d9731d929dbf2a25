"""Rows into topics: options, partitioning, encoding, sending."""
