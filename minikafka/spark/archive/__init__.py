"""Saves topics to Parquet files that are named by offset range, and loads these files into topics."""
