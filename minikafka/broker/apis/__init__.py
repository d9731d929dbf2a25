"""One module per family of Kafka APIs: the keys and versions it serves, and what it ignores."""
