"""A small native Kafka client for scripts, the command line, benchmarks and tests."""

from __future__ import annotations

from minikafka.client.client import Client, Fetched, NewTopic, Produced
from minikafka.client.consumer import ConsumedRecord
from minikafka.client.metadata import ClusterInfo, Node, PartitionInfo, TopicInfo
from minikafka.record.batch import Record

__all__ = [
    "Client",
    "ClusterInfo",
    "ConsumedRecord",
    "Fetched",
    "NewTopic",
    "Node",
    "PartitionInfo",
    "Produced",
    "Record",
    "TopicInfo",
]
