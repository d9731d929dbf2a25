"""Parquet files of archives and tables: directories that readers see complete, and the tasks that read and write."""
