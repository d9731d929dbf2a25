"""Topics as Parquet files that are named after offset ranges, and back into topics."""
