"""The check of produced batches by a walk over their records: verdicts, number of steps, and recompression."""

from __future__ import annotations

import struct
import tracemalloc
from collections.abc import Iterable
from random import Random
from typing import Any

import cramjam
import pytest
from support.cases import for_each
from support.kafka.encoders import CODECS, raw_batch
from support.kafka.produced_batches import MANY, MANY_COUNT, THREE, batches, record

from minikafka.base.config import BrokerConfig, TopicConfig
from minikafka.base.errors import ErrorCode
from minikafka.kafka.records import walk
from minikafka.kafka.records.batch import Record, build, check_produced, records
from minikafka.kafka.records.codecs import compress, crc32c
from minikafka.kafka.records.header import (
    ATTRIBUTES,
    CRC_AT,
    CRC_START,
    HEADER,
    LOG_APPEND_TIME,
    MAX_TIMESTAMP,
)
from minikafka.kafka.records.rules import KEEP, LISTED_MAX, RecordRules, rules_of
from minikafka.kafka.records.walk import AT_ONCE_BYTES, Walk, judge

INVALID = int(ErrorCode.INVALID_RECORD)
RULES = RecordRules(1 << 30)
CASES = batches()


def walked(
    batch: bytes, rules: RecordRules = RULES, room: int = 1 << 30, wall_ms: int = 0
) -> tuple[int | bytearray, int]:
    """Check the batch; return the verdict and the number of steps of the walk, 0 if no walk was necessary."""
    outcome = judge(memoryview(batch), 0, len(batch), rules, room, wall_ms)
    if isinstance(outcome, int):
        return outcome, 0
    steps = 1
    while outcome.step():
        steps += 1
    assert outcome.is_done
    return outcome.verdict, steps


def refused(batch: bytes, rules: RecordRules, room: int = 1 << 30, wall_ms: int = 0) -> Walk:
    """Check a batch that is refused; return the walk, whose `errors` are the bad records."""
    outcome = judge(memoryview(batch), 0, len(batch), rules, room, wall_ms)
    assert isinstance(outcome, Walk)
    while outcome.step():
        pass
    return outcome


@for_each(CASES)
def test_batch_is_refused_if_a_consumer_cannot_read_it(batch: bytes, is_sound: bool) -> None:
    expected = 0 if is_sound else INVALID
    assert walked(batch)[0] == expected
    assert walked(batch, room=0)[0] == expected, "the walk is made in steps"


@for_each(CASES)
def test_walk_in_pieces_of_16_bytes_accepts_only_valid_batches(
    batch: bytes, is_sound: bool
) -> None:
    """Records larger than a piece are checked by Python code. With tiny pieces, this applies to most records."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(walk, "_PIECE_BYTES", 16)
        verdict, _ = walked(batch, room=0)
    assert verdict == (0 if is_sound else INVALID)


def test_batch_that_is_truncated_at_any_byte_is_refused() -> None:
    for room in (1 << 30, 0):
        for end in range(len(THREE)):
            assert walked(raw_batch(THREE[:end], 3), room=room)[0] == INVALID


def test_record_that_extends_beyond_its_batch_is_refused() -> None:
    cut = raw_batch(record()[:-1] + b"\xff", 1)
    behind = cut + record() * 20
    assert judge(memoryview(behind), 0, len(cut), RULES, AT_ONCE_BYTES, 0) != 0
    assert walked(cut)[0] == INVALID


@pytest.mark.parametrize(
    "body",
    [
        record(value=bytes(300_000)),
        record(key=bytes(300_000)),
        record(headers=60_000),
        record(value=bytes(100_000)) + record(1) + record(2, key=bytes(100_000)),
    ],
    ids=["value", "key", "headers", "several"],
)
@pytest.mark.parametrize("codec", CODECS.values(), ids=CODECS)
def test_record_that_spans_several_walk_pieces_is_checked(body: bytes, codec: int) -> None:
    count = 3 if body.endswith(record(2, key=bytes(100_000))) else 1
    data = compress(codec, body)
    assert walked(raw_batch(data, count, codec=codec))[0] == 0
    broken = compress(codec, body[:-1] + b"\x7e")
    assert walked(raw_batch(broken, count, codec=codec))[0] == INVALID


class TestBombs:
    @pytest.mark.parametrize("codec", CODECS.values(), ids=CODECS)
    def test_records_above_the_limit_of_decompressed_bytes_are_refused(
        self, codec: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(walk, "DECOMPRESSED_LIMIT", 2_000_000)
        for size, verdict in ((1_999_000, 0), (2_000_000, INVALID)):
            body = compress(codec, record(value=bytes(size)))
            assert walked(raw_batch(body, 1, codec=codec))[0] == verdict

    @pytest.mark.parametrize("codec", [1, 4])
    def test_walk_of_a_record_of_8_mib_allocates_less_than_1_mib(self, codec: int) -> None:
        bomb = raw_batch(compress(codec, record(value=bytes(8 << 20))), 1, codec=codec)
        assert len(bomb) < 1 << 14
        outcome = judge(memoryview(bomb), 0, len(bomb), RULES, AT_ONCE_BYTES, 0)
        assert isinstance(outcome, Walk)
        tracemalloc.start()
        while outcome.step():
            pass
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert outcome.verdict == 0
        assert peak < 1 << 20

    def test_batch_that_claims_a_huge_decompressed_size_is_refused(self) -> None:
        claim = b"\xff\xff\xff\xff\x0f" + bytes(20)
        assert walked(raw_batch(claim, 1, codec=2))[0] == INVALID

    def test_walk_over_many_empty_zstd_blocks_takes_many_steps_and_refuses_the_batch(self) -> None:
        frame = b"\x28\xb5\x2f\xfd\x00\x58" + bytes(3) * 100_000 + b"\1\0\0"
        verdict, steps = walked(raw_batch(frame, 1, codec=4))
        assert verdict == INVALID
        assert steps > 1000

    def test_first_walk_step_decompresses_at_most_one_zstd_block(self) -> None:
        block = struct.pack("<I", ((128 << 10) - 1) << 3 | 2)[:3] + b"\0"
        frame = b"\x28\xb5\x2f\xfd\x00\x58" + block * 1000 + b"\1\0\0"
        batch = raw_batch(frame, 1, codec=4)
        outcome = judge(memoryview(batch), 0, len(batch), RULES, AT_ONCE_BYTES, 0)
        assert isinstance(outcome, Walk)
        assert outcome.step()
        assert outcome.inflated < 128 << 10

    def test_snappy_block_that_is_too_large_to_decompress_at_once_is_refused(self) -> None:
        for size, verdict in ((23 << 20, 0), (25 << 20, INVALID)):
            block = bytes(cramjam.snappy.compress_raw(record(value=bytes(size))))
            assert walked(raw_batch(block, 1, codec=2))[0] == verdict


def test_batch_larger_than_max_message_bytes_is_refused_without_decompression() -> None:
    batch = raw_batch(compress(1, MANY), MANY_COUNT, codec=1)
    too_large = RecordRules(len(batch) - 1)
    assert walked(batch, too_large) == (ErrorCode.MESSAGE_TOO_LARGE, 0)
    assert walked(batch, RecordRules(len(batch)))[0] == 0


@pytest.mark.parametrize("codec", CODECS.values(), ids=CODECS)
@pytest.mark.parametrize("room", [1 << 30, 0], ids=["at once", "in steps"])
def test_records_of_a_compacted_topic_need_keys(codec: int, room: int) -> None:
    rules = RecordRules(1 << 30, needs_keys=True)
    keyed = record(key=b"k") + record(1, key=b"", value=None)
    for body, verdict in ((keyed, 0), (keyed[:-7] + record(1), INVALID), (record() * 2, INVALID)):
        assert walked(raw_batch(compress(codec, body), 2, codec=codec), rules, room)[0] == verdict
    large = record(value=bytes(100_000)) * 2
    assert walked(raw_batch(compress(codec, large), 2, codec=codec), rules, room)[0] == INVALID


class TestAnotherCodec:
    @pytest.mark.parametrize("to", CODECS.values(), ids=CODECS)
    @pytest.mark.parametrize("codec", CODECS.values(), ids=CODECS)
    def test_batch_is_recompressed_with_the_codec_of_the_topic(self, codec: int, to: int) -> None:
        batch = raw_batch(compress(codec, MANY), MANY_COUNT, codec=codec, first_time=1000)
        verdict, _ = walked(batch, RecordRules(1 << 30, codec=to))
        if codec == to:
            assert verdict == 0
            return
        assert isinstance(verdict, bytearray)
        header = HEADER.unpack_from(verdict)
        assert check_produced(memoryview(verdict), header, False) == 0
        assert walked(bytes(verdict))[0] == 0
        assert list(records(verdict)) == list(records(batch))
        assert header[5] == to

    def test_invalid_records_are_refused_before_they_are_compressed(self) -> None:
        assert walked(raw_batch(THREE, 4), RecordRules(1 << 30, codec=1))[0] == INVALID

    def test_batch_that_becomes_too_large_when_recompressed_is_refused(self) -> None:
        batch = raw_batch(compress(4, MANY), MANY_COUNT, codec=4)
        assert len(batch) < 100_000 < len(MANY)
        assert walked(batch, RecordRules(100_000, codec=0))[0] == ErrorCode.MESSAGE_TOO_LARGE
        assert isinstance(walked(batch, RecordRules(400_000, codec=0))[0], bytearray)

    @pytest.mark.parametrize(("codec", "levels"), [(1, (1, 9)), (3, (9, 12)), (4, (1, 19))])
    def test_recompression_uses_the_configured_level(
        self, codec: int, levels: tuple[int, int]
    ) -> None:
        words, choice = [b"alpha ", b"beta ", b"gamma ", b"delta ", b"eps "], Random(3).randrange
        values = [b"".join(words[choice(5)] for _ in range(40)) for _ in range(500)]
        text = b"".join(record(n, value=value) for n, value in enumerate(values))
        batch = raw_batch(text, 500)
        sizes = []
        for level in levels:
            verdict, _ = walked(batch, RecordRules(1 << 30, codec=codec, level=level))
            assert isinstance(verdict, bytearray)
            assert walked(bytes(verdict))[0] == 0
            sizes.append(len(verdict))
        assert sizes[0] > sizes[1]


def test_record_rules_are_derived_from_the_topic_configuration() -> None:
    broker = BrokerConfig.from_mapping({"broker.id": 0})

    def of(**settings: str) -> RecordRules:
        names = {name.replace("_", "."): value for name, value in settings.items()}
        return rules_of(TopicConfig.from_broker(broker, names))

    assert of() == RecordRules(1_048_588)
    assert of(cleanup_policy="compact,delete", max_message_bytes="9") == RecordRules(
        9, needs_keys=True, is_demanding=True
    )
    assert of(compression_type="zstd", compression_zstd_level="7") == RecordRules(
        1_048_588, codec=4, level=7, is_demanding=True
    )
    assert of(compression_type="uncompressed").codec == 0
    assert of(compression_type="producer").codec == KEEP


class TestTimestamps:
    """Limits of record timestamps: 1000 ms before and 2000 ms after the append time, which is 10 000."""

    RULES = rules_of(
        TopicConfig.from_broker(
            BrokerConfig.from_mapping({"broker.id": 0}),
            {"message.timestamp.before.max.ms": "1000", "message.timestamp.after.max.ms": "2000"},
        )
    )

    @pytest.mark.key("message.timestamp.before.max.ms", "message.timestamp.after.max.ms")
    @pytest.mark.parametrize("codec", range(5))
    @pytest.mark.parametrize("room", [1 << 30, 0], ids=["at once", "in steps"])
    @pytest.mark.parametrize("piece", [16, 32 << 10], ids=["tiny pieces", "whole pieces"])
    @pytest.mark.parametrize(
        ("timestamps", "is_valid"),
        [
            ([10_000], True),
            ([9_000, 12_000], True),
            ([8_999], False),
            ([12_001], False),
            ([10_000, 8_999, 10_000], False),
            ([10_000, 12_001, 10_000], False),
            ([-1, 10_000], True),
            ([10_000, -1], True),
        ],
    )
    def test_records_with_timestamps_outside_the_limits_are_refused(
        self,
        timestamps: list[int],
        is_valid: bool,
        codec: int,
        room: int,
        piece: int,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setattr(walk, "_PIECE_BYTES", piece)
        made = [Record(timestamp=timestamp, value=b"m") for timestamp in timestamps]
        batch = build(made, codec=codec)
        verdict, _ = walked(batch, self.RULES, room, wall_ms=10_000)
        assert verdict == (0 if is_valid else ErrorCode.INVALID_TIMESTAMP)

    @pytest.mark.key("message.timestamp.difference.max.ms")
    @pytest.mark.parametrize(
        ("settings", "limits"),
        [
            ({"message.timestamp.difference.max.ms": "7"}, (7, 7)),
            (
                {
                    "message.timestamp.difference.max.ms": "7",
                    "message.timestamp.before.max.ms": "9",
                },
                (9, 7),
            ),
            (
                {
                    "message.timestamp.difference.max.ms": "7",
                    "message.timestamp.type": "LogAppendTime",
                },
                None,
            ),
        ],
    )
    def test_older_key_limits_timestamps_where_the_newer_keys_do_not(
        self, settings: dict[str, str], limits: tuple[int, int] | None
    ) -> None:
        broker = BrokerConfig.from_mapping({"broker.id": 0})
        assert rules_of(TopicConfig.from_broker(broker, settings)).distances == limits

    def test_largest_timestamp_in_the_batch_header_must_be_within_the_limits_too(self) -> None:
        batch = bytearray(build([Record(timestamp=10_000, value=b"m")]))
        header = list(HEADER.unpack_from(batch))
        header[MAX_TIMESTAMP] = 12_001
        HEADER.pack_into(batch, 0, *header)
        check = refused(batch, self.RULES, wall_ms=10_000)
        assert (check.verdict, check.errors) == (ErrorCode.INVALID_TIMESTAMP, None)

    def test_one_walk_step_checks_timestamps_of_at_most_32_kib_of_records(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A small compressed batch can hold a million timestamps."""
        looked: list[int] = []
        check = walk._is_within

        def counted(timestamps: Iterable[int], *limits: Any) -> bool:
            found = list(timestamps)
            looked.append(len(found))
            return check(found, *limits)

        monkeypatch.setattr(walk, "_is_within", counted)
        count = 100_000
        batch = build([Record(timestamp=10_000, value=b"")] * count, codec=4)
        verdict, steps = walked(batch, self.RULES, wall_ms=10_000)
        assert (verdict, sum(looked)) == (0, count)
        assert max(looked) <= (32 << 10) // 7 + 1
        assert steps >= count * 7 // (32 << 10)

    def test_batch_without_keys_is_refused_even_if_its_timestamps_are_within_limits(self) -> None:
        rules = self.RULES._replace(needs_keys=True)
        batch = build([Record(timestamp=10_000, value=b"m")])
        assert walked(batch, rules, wall_ms=10_000)[0] == INVALID

    def test_timestamp_limits_do_not_apply_with_log_append_time(self) -> None:
        limits = {"message.timestamp.before.max.ms": "5"}
        broker = BrokerConfig.from_mapping({"broker.id": 0, "zookeeper.connect": "h:1"})
        limited = rules_of(TopicConfig.from_broker(broker, limits))
        assert (limited.distances, limited.is_demanding) == ((5, 2**63 - 1), True)
        limits["message.timestamp.type"] = "LogAppendTime"
        assert rules_of(TopicConfig.from_broker(broker, limits)).distances is None


class TestRecordErrors:
    """The bad records of a refused batch (KIP-467): the limits are 1000 ms before and 2000 ms after 10 000."""

    KEYED = RecordRules(1 << 30, needs_keys=True)

    @pytest.mark.parametrize("codec", range(5))
    @pytest.mark.parametrize("room", [1 << 30, 0], ids=["at once", "in steps"])
    @pytest.mark.parametrize("piece", [16, 32 << 10], ids=["tiny pieces", "whole pieces"])
    def test_batch_for_a_compacted_topic_names_its_records_without_keys(
        self, codec: int, room: int, piece: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(walk, "_PIECE_BYTES", piece)
        made = [Record(key=None if n in (10, 90) else b"k", value=b"v" * n) for n in range(100)]
        check = refused(build(made, codec=codec), self.KEYED, room)
        assert check.verdict == INVALID
        assert check.errors is not None
        message, errors = check.errors.texts("topic-3")
        text = "Compacted topic cannot accept message without key in topic partition topic-3"
        assert errors == [(10, text), (90, text)]
        assert message == (
            "One or more records have been rejected due to 2 record errors in total, and only showing the first "
            f"three errors at most: [RecordError(batchIndex=10, message='{text}'), "
            f"RecordError(batchIndex=90, message='{text}')]"
        )

    @pytest.mark.parametrize("codec", [0, 4])
    @pytest.mark.parametrize("piece", [16, 32 << 10], ids=["tiny pieces", "whole pieces"])
    def test_batch_names_its_records_outside_the_timestamp_limits(
        self, codec: int, piece: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(walk, "_PIECE_BYTES", piece)
        times = [10_000, 8_999, -1, 12_000, 12_001]
        batch = build([Record(timestamp=time, value=b"m") for time in times], codec=codec)
        check = refused(batch, TestTimestamps.RULES, wall_ms=10_000)
        assert check.verdict == ErrorCode.INVALID_TIMESTAMP
        assert check.errors is not None
        message, errors = check.errors.texts("t-0")
        assert message == "One or more records have been rejected due to invalid timestamp"
        allowed = "out of range. The timestamp should be within [9000, 12000]"
        assert errors == [
            (1, f"Timestamp 8999 of message with offset 1 is {allowed}"),
            (4, f"Timestamp 12001 of message with offset 4 is {allowed}"),
        ]

    def test_one_bad_timestamp_decides_the_error_code_of_the_batch(self) -> None:
        rules = TestTimestamps.RULES._replace(needs_keys=True)
        rows = [(b"k", 10_000), (None, 5), (b"k", 5), (None, 10_000)]
        batch = build([Record(key=key, timestamp=time, value=b"m") for key, time in rows])
        check = refused(batch, rules, wall_ms=10_000)
        assert check.verdict == ErrorCode.INVALID_TIMESTAMP
        assert check.errors is not None
        found = {index: text.split()[0] for index, text in check.errors.texts("t-0")[1]}
        assert found == {1: "Compacted", 2: "Timestamp", 3: "Compacted"}, "the key comes first"

    def test_check_ends_when_it_has_found_the_largest_number_of_bad_records(self) -> None:
        batch = build([Record(value=b"")] * 100_000, codec=4)
        check = refused(batch, self.KEYED)
        assert check.verdict == INVALID
        assert check.errors is not None
        assert len(check.errors) == LISTED_MAX
        assert check.inflated < 200_000

    def test_unreadable_batch_names_no_records(self) -> None:
        batch = raw_batch(record(0) + record(1)[:-1] + b"\xff", 2)
        check = refused(batch, self.KEYED)
        assert (check.verdict, check.errors) == (INVALID, None)

    def test_restarted_check_names_each_record_once(self) -> None:
        batch = build([Record(value=b"")] * 3, codec=4)
        check = judge(memoryview(batch), 0, len(batch), self.KEYED, 1 << 30, 0)
        assert isinstance(check, Walk)
        for _ in range(3):
            check.step()
        check.restart()
        while check.step():
            pass
        assert check.errors is not None
        assert [index for index, _ in check.errors.texts("t-0")[1]] == [0, 1, 2]


class TestLogAppendTime:
    """Batches with the timestamp type LogAppendTime, which only a broker may set."""

    def batch(self, *timestamps: int, codec: int = 0, largest: int | None = None) -> bytearray:
        made = [Record(timestamp=time, key=b"k", value=b"m") for time in timestamps]
        batch = bytearray(build(made, codec=codec, attributes=LOG_APPEND_TIME))
        if largest is not None:
            header = list(HEADER.unpack_from(batch))
            header[MAX_TIMESTAMP] = largest
            HEADER.pack_into(batch, 0, *header)
            struct.pack_into(">I", batch, CRC_AT, crc32c(bytes(batch[CRC_START:])))
        return batch

    @pytest.mark.parametrize("codec", range(5))
    @pytest.mark.parametrize("wanted", [KEEP, 0, 4])
    def test_batch_gets_the_timestamp_type_of_a_topic_with_create_time(
        self, codec: int, wanted: int
    ) -> None:
        batch = self.batch(9_000, 12_000, codec=codec)
        rules = TestTimestamps.RULES._replace(codec=wanted)
        verdict, _ = walked(batch, rules, wall_ms=10_000)
        assert isinstance(verdict, bytearray)
        header = HEADER.unpack_from(verdict)
        assert check_produced(memoryview(verdict), header, False) == 0
        assert header[ATTRIBUTES] == (codec if wanted == KEEP else wanted)
        assert [one.timestamp for one in records(verdict)] == [9_000, 12_000]
        assert bytes(batch) == bytes(self.batch(9_000, 12_000, codec=codec)), "not in place"

    def test_timestamps_of_the_batch_are_checked(self) -> None:
        for bad in ((10_000, 8_999), (10_000, 12_001)):
            check = refused(self.batch(*bad), TestTimestamps.RULES, wall_ms=10_000)
            assert check.verdict == ErrorCode.INVALID_TIMESTAMP
            assert check.errors is not None
            assert [index for index, _ in check.errors.texts("t-0")[1]] == [1]

    @pytest.mark.parametrize(
        ("rules", "largest"),
        [(RULES._replace(log_append_time=True), None), (RULES, -1)],
        ids=["topic with LogAppendTime", "no time"],
    )
    def test_every_record_is_refused_where_the_topic_sets_the_time_itself(
        self, rules: RecordRules, largest: int | None
    ) -> None:
        check = refused(self.batch(9_000, 12_000, largest=largest), rules)
        assert check.verdict == ErrorCode.INVALID_TIMESTAMP
        assert check.errors is not None
        message, errors = check.errors.texts("t-0")
        assert message == "One or more records have been rejected due to invalid timestamp"
        text = "Producer should not set timestamp type to LogAppendTime."
        assert [(index, text in found) for index, found in errors] == [(0, True), (1, True)]


@pytest.mark.parametrize("wanted", [KEEP, 4], ids=["timestamp type", "codec"])
def test_damaged_batch_gets_no_new_checksum(wanted: int) -> None:
    """A batch whose header is replaced would otherwise hide the damage from every reader."""
    made = [Record(timestamp=10_000, key=b"k", value=b"value")]
    attributes = LOG_APPEND_TIME if wanted == KEEP else 0
    batch = bytearray(build(made, attributes=attributes))
    rules = RULES._replace(codec=wanted)
    assert isinstance(walked(batch, rules)[0], bytearray)
    batch[batch.index(b"value")] ^= 1
    assert walked(batch, rules)[0] == ErrorCode.CORRUPT_MESSAGE
