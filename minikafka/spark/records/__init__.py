"""Conversion of record batches to Arrow columns, and of Arrow columns to record batches."""
