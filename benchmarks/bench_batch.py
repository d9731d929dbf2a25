"""Cost of checking and stamping one produced batch of 259 bytes and of 16 KiB."""

from __future__ import annotations

from benchmarks.kafka import batch_of
from benchmarks.micro import Outcome, main, timed
from minikafka.kafka.records.batch import check_produced, stamp
from minikafka.kafka.records.header import HEADER


def _check_and_stamp(size: int, operations: int) -> Outcome:
    batch = memoryview(bytearray(batch_of(size)))

    def work() -> int:
        errors = 0
        for _ in range(operations):
            header = HEADER.unpack_from(batch)
            errors += check_produced(batch, header, False)
            stamp(batch, 0, 0, header[1], 7)
        return errors

    return timed(operations, work)


def check_and_stamp_259_bytes(operations: int) -> Outcome:
    """Check and stamp a small batch, as a leader does before each append."""
    return _check_and_stamp(259, operations)


def check_and_stamp_16_kib(operations: int) -> Outcome:
    """Check a batch of 16 KiB, then write its base offset and leader epoch. The CRC takes most of the time."""
    return _check_and_stamp(16_384, operations)


BENCHES = (check_and_stamp_259_bytes, check_and_stamp_16_kib)

if __name__ == "__main__":
    main(*BENCHES)
