"""Cost of checking the records of produced batches, either in one call or in pieces."""

from __future__ import annotations

from benchmarks.micro import Outcome, main, timed
from minikafka.kafka.records.batch import Record, build
from minikafka.kafka.records.rules import RecordRules
from minikafka.kafka.records.walk import AT_ONCE_BYTES, judge

RULES = RecordRules(1 << 20)


def _walk(count: int, value_bytes: int, operations: int, codec: int = 0) -> Outcome:
    records = [Record(0, 1000 + n, None, b"%0*d" % (value_bytes, n), ()) for n in range(count)]
    batch = memoryview(bytearray(build(records, codec=codec)))

    def work() -> int:
        errors = 0
        for _ in range(operations):
            verdict = judge(batch, 0, len(batch), RULES, AT_ONCE_BYTES, 0)
            if not isinstance(verdict, int):
                while verdict.step():
                    pass
                verdict = int(verdict.verdict != 0)
            errors += verdict
        return errors

    return timed(operations, work)


def walk_batch_of_one_record(operations: int) -> Outcome:
    """Check a batch with one record, which has a value of 200 bytes."""
    return _walk(1, 200, operations)


def walk_batch_of_160_records(operations: int) -> Outcome:
    """Check a batch with 160 records of 100 bytes, in one call."""
    return _walk(160, 90, operations)


def walk_batch_of_2000_records(operations: int) -> Outcome:
    """Check a batch with 2,000 records of 100 bytes, in pieces."""
    return _walk(2000, 90, operations)


def walk_batch_of_160_records_in_gzip(operations: int) -> Outcome:
    """Decompress and check a gzip batch with 160 records of 100 bytes."""
    return _walk(160, 90, operations, codec=1)


def walk_batch_of_160_records_in_zstd(operations: int) -> Outcome:
    """Decompress and check a zstd batch with 160 records of 100 bytes."""
    return _walk(160, 90, operations, codec=4)


BENCHES = (
    walk_batch_of_one_record,
    walk_batch_of_160_records,
    walk_batch_of_2000_records,
    walk_batch_of_160_records_in_gzip,
    walk_batch_of_160_records_in_zstd,
)

if __name__ == "__main__":
    main(*BENCHES)
