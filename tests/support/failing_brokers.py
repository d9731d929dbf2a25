"""`ProduceBrokers` that fail at random: lost answers and requests, leader changes, lost batches and errors.

The brokers keep the promise of acks=all and no other: a batch whose answer was sent is never lost. A batch that was
appended, but whose answer was not sent yet, may be lost with its leader. So a new leader may have any number of the
batches in flight.
"""

from __future__ import annotations

import random
import select
import socket
import threading

from support.produce_brokers import ProduceBrokers, Sent

PRODUCE = 0
RETRIABLE = (5, 6, 7, 19, 20)


class FailingBrokers(ProduceBrokers):
    """Brokers that fail `failures` times in total, and work after that."""

    def __init__(self, count: int, seed: int, failures: int) -> None:
        self.failures = failures
        self.random = random.Random(seed)
        self.answered: set[tuple[str, int, int, int]] = set()
        """Topic, partition, producer id and sequence of every batch whose acknowledgement was sent."""
        self.held: dict[socket.socket, list[tuple[list[Sent], bytes]]] = {}
        """The answers of each connection that are not sent yet, with the batches that they acknowledge."""
        self._own = threading.local()
        super().__init__(count)

    def _happens(self, probability: float) -> bool:
        if not self.failures or self.random.random() >= probability:
            return False
        self.failures -= 1
        return True

    def _produce(self, index: int, body):
        self._own.written = []
        if self._happens(0.05):
            raise ConnectionAbortedError
        return super()._produce(index, body)

    def _append(self, sent: Sent, batch: bytes) -> int:
        if self._happens(0.05):
            return self.random.choice(RETRIABLE)
        code = super()._append(sent, batch)
        if not code:
            self._own.written.append(sent)
        return code

    def deliver(self, index: int, connection: socket.socket, api: int, frame: bytes) -> bool:
        """Hold the answers to Produce requests while the client sends further requests."""
        if api != PRODUCE:
            return super().deliver(index, connection, api, frame)
        with self.lock:
            held = self.held.setdefault(connection, [])
            held.append((self._own.written, frame))
            is_dead = self._happens(0.15)
            if is_dead:
                self._fail_over(index, held)
            elif not select.select([connection], [], [], 0)[0]:
                while held:
                    written, one = held.pop(0)
                    if not all(map(self._is_in_log, written)):
                        return False
                    self.answered.update(map(_key, written))
                    connection.sendall(one)
            return not is_dead

    def _fail_over(self, index: int, held: list[tuple[list[Sent], bytes]]) -> None:
        """Move some partitions of a broker. Their new leaders have only some of the batches in flight."""
        if len(self.live) > 1 and self.random.random() < 0.7:
            survivors = self.random.randrange(len(held) + 1)
            for written, _ in reversed(held[survivors:]):
                for sent in reversed(written):
                    self._lose(sent)
            for topic, partitions in self.topics.items():
                for number, partition in enumerate(partitions):
                    if partition.leader == index and self.random.random() < 0.7:
                        others = sorted(self.live - {index})
                        self.move(topic, number, self.random.choice(others))

    def _lose(self, sent: Sent) -> None:
        known = self.acknowledged[sent.topic, sent.partition, sent.producer]
        is_last = known and known[-1] == (sent.sequence, sent.count)
        if is_last and _key(sent) not in self.answered:
            known.pop()
            partition = self.topics[sent.topic][sent.partition]
            partition.truncate(partition.batches[-1][0])

    def _is_in_log(self, sent: Sent) -> bool:
        known = self.acknowledged[sent.topic, sent.partition, sent.producer]
        return (sent.sequence, sent.count) in known


def _key(sent: Sent) -> tuple[str, int, int, int]:
    return sent.topic, sent.partition, sent.producer[0], sent.sequence
