"""The codec of messages decodes the requests of transactions and encodes the responses that we parse."""

from __future__ import annotations

import struct

from minikafka.base.model import TopicPartition
from minikafka.kafka.wire import codec
from minikafka.spark.wire import producing, transactions
from minikafka.spark.wire.transactions import CommittedOffset, Identity

NO_TAGS = b"\x00"
LINES = TopicPartition("lines", 3)
WORDS = TopicPartition("mehr ä", 0)
PRODUCER = Identity("spark ü", 1 << 40, 7)


def test_find_coordinator_names_the_kind_and_the_key():
    body = transactions.find_coordinator_request("ü", transactions.OF_TRANSACTIONS)
    request = codec.decode_request(*transactions.FIND_COORDINATOR, body)
    assert (request.key, request.key_type) == ("ü", 1)
    answer = struct.pack(">ihhi", 0, 0, -1, 2) + struct.pack(">h9si", 9, b"127.0.0.1", 9092)
    assert transactions.parse_find_coordinator(memoryview(answer)) == (0, ("127.0.0.1", 9092))


def test_init_producer_id_has_the_transactional_id_and_its_timeout():
    for name in ("spark ü", None):
        body = producing.init_producer_request(name, 1234)
        request = codec.decode_request(*producing.INIT_PRODUCER_ID, body)
        assert request.transactional_id == name
        assert request.transaction_timeout_ms == 1234


def test_produce_request_names_the_transactional_id():
    body = producing.produce_request({LINES: b"batch"}, 1234, "spark ü")
    request = codec.decode_request(*producing.PRODUCE, body)
    assert (request.transactional_id, request.acks) == ("spark ü", -1)


def test_add_partitions_names_the_producer_and_each_partition():
    body = transactions.add_partitions_request(PRODUCER, [LINES, WORDS])
    request = codec.decode_request(*transactions.ADD_PARTITIONS, body)
    assert (request.v3_and_below_transactional_id, request.v3_and_below_producer_id) == PRODUCER[:2]
    assert request.v3_and_below_producer_epoch == 7
    named = [(one.name, list(one.partitions)) for one in request.v3_and_below_topics]
    assert named == [("lines", [3]), ("mehr ä", [0])]


def test_refused_partition_hides_behind_no_partition_that_was_not_tried():
    answer = struct.pack(">iih1s", 0, 1, 1, b"t") + struct.pack(">iihihih", 3, 0, 55, 1, 47, 2, 55)
    assert transactions.parse_add_partitions(memoryview(answer)).error == 47
    answer = struct.pack(">iih1s", 0, 1, 1, b"t") + struct.pack(">iih", 1, 0, 0)
    assert transactions.parse_add_partitions(memoryview(answer)).error == 0


def test_add_offsets_and_end_name_the_producer():
    body = transactions.add_offsets_request(PRODUCER, "group")
    request = codec.decode_request(*transactions.ADD_OFFSETS, body)
    assert (request.transactional_id, request.producer_id, request.producer_epoch) == PRODUCER
    assert request.group_id == "group"
    for commit in (False, True):
        body = transactions.end_request(PRODUCER, commit=commit)
        request = codec.decode_request(*transactions.END, body)
        assert (request.transactional_id, request.producer_id, request.producer_epoch) == PRODUCER
        assert request.committed is commit
    answer = memoryview(struct.pack(">ih", 0, 47))
    assert transactions.parse_add_offsets(answer).error == 47
    assert transactions.parse_end(answer).error == 47


def test_offset_in_a_transaction_has_its_metadata():
    body = transactions.txn_offset_commit_request(PRODUCER, "group", LINES, 1 << 40, "méta")
    request = codec.decode_request(*transactions.TXN_OFFSET_COMMIT, body)
    assert (request.transactional_id, request.producer_id, request.producer_epoch) == PRODUCER
    assert request.group_id == "group"
    ((topic,), (one,)) = request.topics, request.topics[0].partitions
    assert (topic.name, one.partition_index) == LINES
    assert (one.committed_offset, one.committed_metadata) == (1 << 40, "méta")
    assert one.committed_leader_epoch == -1


def test_offset_fetch_asks_for_stable_offsets_of_one_partition():
    body = transactions.offset_fetch_request("group ü", LINES)
    request = codec.decode_request(*transactions.OFFSET_FETCH, NO_TAGS + body)
    assert (request.group_id, request.require_stable) == ("group ü", True)
    (topic,) = request.topics
    assert (topic.name, list(topic.partition_indexes)) == ("lines", [3])


def test_offset_fetch_returns_offset_and_metadata_or_the_error():
    metadata = b"x" * 200
    entry = struct.pack(">iqi", 3, 1 << 40, -1) + b"\xc9\x01" + metadata + struct.pack(">h", 0)
    topics = b"\x02\x06lines\x02" + entry + NO_TAGS + NO_TAGS
    answer = struct.pack(">i", 0) + topics + struct.pack(">h", 0) + NO_TAGS
    found = transactions.parse_offset_fetch(memoryview(answer))
    assert found == CommittedOffset(0, 1 << 40, metadata.decode())
    answer = struct.pack(">i", 0) + b"\x01" + struct.pack(">h", 16) + NO_TAGS
    assert transactions.parse_offset_fetch(memoryview(answer)).error == 16


def test_api_versions_give_the_highest_version_of_each_request():
    answer = struct.pack(">hihhhhhh", 0, 2, 24, 0, 5, 26, 1, 4)
    assert transactions.parse_api_versions(memoryview(answer)) == {24: 5, 26: 4}
