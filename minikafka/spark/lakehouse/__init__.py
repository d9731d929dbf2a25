"""Tables of Delta Lake and Apache Iceberg: Spark's tasks write Parquet files, and the driver commits them once.

What runs in executors (`rules`, `stage`, `places`) imports only pyarrow and numpy. The libraries of the formats,
deltalake and pyiceberg, are imported only on the driver.
"""
