"""The codec of messages decodes the requests about topics."""

from __future__ import annotations

import struct

from minikafka.base.model import TopicPartition
from minikafka.kafka.wire import codec
from minikafka.spark.wire import topics


def test_create_topics_has_the_number_of_partitions_and_replicas_and_the_settings():
    body = topics.create_topic_request("ü", 8, 3, {"retention.ms": "1", "cleanup.policy": "x"}, 99)
    request = codec.decode_request(*topics.CREATE_TOPICS, body)
    (topic,) = request.topics
    assert (topic.name, topic.num_partitions, topic.replication_factor) == ("ü", 8, 3)
    settings = {one.name: one.value for one in topic.configs}
    assert settings == {"retention.ms": "1", "cleanup.policy": "x"}
    assert not topic.assignments
    assert not request.validate_only
    answer = struct.pack(">iih1shh", 0, 1, 1, b"t", 36, -1)
    assert topics.parse_create_topic(memoryview(answer)) == 36


def test_delete_topics_names_the_topic():
    request = codec.decode_request(*topics.DELETE_TOPICS, topics.delete_topic_request("ü", 99))
    assert list(request.topic_names) == ["ü"]
    answer = struct.pack(">iih1sh", 0, 1, 1, b"t", 3)
    assert topics.parse_delete_topic(memoryview(answer)) == 3


def test_delete_records_has_the_new_start_of_each_partition():
    below = {TopicPartition("ü", 1): 1 << 40, TopicPartition("ü", 0): 5}
    body = topics.delete_records_request(below, 99)
    request = codec.decode_request(*topics.DELETE_RECORDS, body)
    (topic,) = request.topics
    found = {(topic.name, one.partition_index): one.offset for one in topic.partitions}
    assert found == below
