"""Tables of Parquet files that any reader reads completely and once, although their writer may be killed."""
