"""Kafka's messages: a table of their fields, and a decoder and an encoder that are compiled from the table.

Spark's executors use this package, so it imports only Python's library, `base`, and those modules of `kafka.records`
that need no other library.
"""
