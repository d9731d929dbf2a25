"""A small Kafka client for scripts, the command line, benchmarks and tests."""

from __future__ import annotations

from minikafka.base.model import Node
from minikafka.client.administration.admin import Admin, NewTopic
from minikafka.client.administration.group_offsets import OffsetAndMetadata
from minikafka.client.administration.results import Outcome
from minikafka.client.client import Client, Fetched, NotProduced, Produced
from minikafka.client.consumer import ConsumedRecord
from minikafka.client.metadata import ClusterInfo, PartitionInfo, TopicInfo
from minikafka.kafka.records.batch import Record

__all__ = [
    "Admin",
    "Client",
    "ClusterInfo",
    "ConsumedRecord",
    "Fetched",
    "NewTopic",
    "Node",
    "NotProduced",
    "OffsetAndMetadata",
    "Outcome",
    "PartitionInfo",
    "Produced",
    "Record",
    "TopicInfo",
]
