"""Writing of rows to topics: options, partitioning, encoding and sending."""
