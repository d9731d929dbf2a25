"""Kafka's messages: a table of their fields, and a decoder and an encoder that are compiled from the table.

Spark's executors use this package, so it imports only Python's library and `minikafka.base` and `minikafka.kafka.records`
modules that need no other library.
"""
