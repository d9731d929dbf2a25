"""Frames and headers of Kafka's protocol, and hand-written codecs of Produce, Fetch and Metadata.

The bodies of all other requests and responses are encoded and decoded by `minikafka.kafka.messages`.
"""
