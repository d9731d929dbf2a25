"""The topics that this broker creates, extends or deletes now.

Other brokers ask for them: what a living broker has begun is no failed attempt.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from minikafka.base.errors import ErrorCode, KafkaError
from minikafka.base.ports import Call
from minikafka.rpc import coordination


class TopicsInWork:
    """The topics in work at one broker."""

    def __init__(self) -> None:
        self._works: Counter[str] = Counter()

    def __contains__(self, topic: object) -> bool:
        return topic in self._works

    @contextmanager
    def hold(self, topic: str) -> Iterator[None]:
        """Count the topic as in work."""
        self._works[topic] += 1
        try:
            yield
        finally:
            self._works[topic] -= 1
            if not self._works[topic]:
                del self._works[topic]

    async def answer(self, call: Call) -> dict[str, Any]:
        """Handle the call `TOPIC_IN_WORK` of another broker. Raises KafkaError."""
        return coordination.encode_answer(in_work=coordination.decode_topic(call.body) in self)


def in_work(topic: str) -> KafkaError:
    """Return the error of a request for a topic that another request works on."""
    message = f"the topic '{topic}' is being changed by another request; retry"
    return KafkaError(ErrorCode.REQUEST_TIMED_OUT, message)
