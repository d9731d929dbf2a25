"""Handlers of Kafka requests: one module per family of APIs, with its keys, its versions and what it ignores."""
