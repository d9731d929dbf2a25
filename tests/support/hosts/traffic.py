"""A program with a producer and a member of a group on one topic, until its input ends: then it prints what it saw.

    traffic.py BOOTSTRAP TOPIC GROUP

The producer writes with acks=all. The member commits what it has processed, and goes on until it has every
acknowledged record. The first line is `begun`, after the first acknowledgement. The last line is JSON: the numbers of
records that were sent, acknowledged, processed and missing, and the longest time without an acknowledgement.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from typing import Any

from confluent_kafka import Consumer, Producer

PAUSE_S = 0.02
END_S = 60.0


class Traffic:
    """The producer and the member of the group."""

    def __init__(self, bootstrap: str, topic: str, group: str) -> None:
        self._topic = topic
        self._sent = 0
        self.acked: set[bytes] = set()
        self.processed: set[bytes] = set()
        self.refused: list[str] = []
        self.longest = 0.0
        self._last = time.monotonic()
        common = {"bootstrap.servers": bootstrap, "log_level": 0}
        self._producer = Producer(
            {**common, "acks": "all", "enable.idempotence": True, "linger.ms": 5}
        )
        self._member = Consumer(
            {
                **common,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "topic.metadata.refresh.interval.ms": 1_000,
            }
        )

    def produce(self, ended: threading.Event) -> None:
        """Send records until `ended` is set, and wait for their outcomes."""
        while not ended.is_set():
            self._producer.produce(self._topic, b"%d" % self._sent, on_delivery=self._report)
            self._sent += 1
            self._producer.poll(PAUSE_S)
        self._producer.flush(END_S)

    def _report(self, error: Any, message: Any) -> None:
        now = time.monotonic()
        self.longest, self._last = max(self.longest, now - self._last), now
        if error is None:
            if not self.acked:
                print("begun", flush=True)
            self.acked.add(message.value())
        else:
            self.refused.append(str(error))

    def process(self, ended: threading.Event) -> None:
        """Process records until `ended` is set and all acknowledged ones are processed, or for END_S more."""
        self._member.subscribe([self._topic])
        deadline = float("inf")
        while time.monotonic() < deadline and not (ended.is_set() and self.acked <= self.processed):
            messages = self._member.consume(100, 0.2)
            good = [message for message in messages if message.error() is None]
            self.processed.update(message.value() for message in good)
            if good:
                self._member.commit(asynchronous=True)
            if ended.is_set() and deadline == float("inf"):
                deadline = time.monotonic() + END_S
        self._member.close()

    def seen(self) -> dict[str, Any]:
        return {
            "sent": self._sent,
            "acked": len(self.acked),
            "processed": len(self.processed),
            "missing": len(self.acked - self.processed),
            "refused": self.refused[:3],
            "longest": round(self.longest, 2),
        }


def main() -> None:
    """Run until standard input ends."""
    traffic = Traffic(*sys.argv[1:])
    stopped, written = threading.Event(), threading.Event()
    member = threading.Thread(target=traffic.process, args=(written,))
    producer = threading.Thread(target=traffic.produce, args=(stopped,))
    member.start()
    producer.start()
    sys.stdin.read()
    stopped.set()
    producer.join()
    written.set()
    member.join()
    print(json.dumps(traffic.seen()))


if __name__ == "__main__":
    main()
