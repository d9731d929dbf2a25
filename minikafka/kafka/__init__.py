"""Kafka's formats: messages, batches of records, and the frames in which clients send them."""
