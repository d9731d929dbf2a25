"""Cost of follower fetches: two followers fetch in turn, and every second fetch advances the high watermark."""

from __future__ import annotations

from benchmarks.bench_log import EPOCH, SIZE, fresh_log
from benchmarks.kafka import batch_of
from benchmarks.micro import Outcome, main, timed
from minikafka.base.model import PartitionState, TopicPartition
from minikafka.kafka.records.header import HEADER
from minikafka.storage.replication.partition import Partition

REPLICAS = (1, 2, 3)
LAG_MAX_MS = 30_000


def record_follower_fetches(operations: int) -> Outcome:
    """Call `Partition.record_follower_fetch`. Every second call advances the high watermark."""
    batch = memoryview(bytearray(batch_of(SIZE)))
    header = HEADER.unpack_from(batch)
    state = PartitionState(
        TopicPartition("t", 0), REPLICAS[0], EPOCH, REPLICAS, 0, 1, REPLICAS, is_new=True
    )
    rounds = -(-operations // 2)
    with fresh_log() as log:
        partition = Partition(state.tp, REPLICAS[0], log, LAG_MAX_MS, lambda broker_id: True)
        partition.become_leader(state, 0)
        for _ in range(rounds):
            log.append(batch, header, EPOCH, 0)
            log.flush()
        followers = [partition.followers[replica] for replica in REPLICAS[1:]]

        def work() -> int:
            position = 0
            for offset in range(1, rounds + 1):
                position += SIZE
                for progress in followers:
                    progress.next_offset, progress.next_position = offset, position
                    partition.record_follower_fetch(progress, offset, 0)
            return partition.high_watermark

        return timed(operations, work)


BENCHES = (record_follower_fetches,)

if __name__ == "__main__":
    main(*BENCHES)
