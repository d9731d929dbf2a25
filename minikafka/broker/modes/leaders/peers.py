"""What the brokers of a cluster ask each other, with their addresses from ZooKeeper."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from minikafka.base.errors import ErrorCode, KafkaError
from minikafka.base.model import Broker, BrokerId, TopicPartition
from minikafka.base.ports import Call, ControlPlane
from minikafka.broker.modes.zookeeper.ports import Ports
from minikafka.broker.rpc import coordination
from minikafka.broker.rpc.broker_calls import call_broker
from minikafka.broker.rpc.coordination import LookReason
from minikafka.broker.side_by_side import all_of
from minikafka.zookeeper.nodes import registrations
from minikafka.zookeeper.nodes.leaders.tree import REGISTRATIONS

logger = logging.getLogger(__name__)

_CALL_MS: Final = 5_000


class Peers:
    """The registered brokers as one broker calls them, and the topics in work that they ask this broker for."""

    def __init__(self, ports: Ports, control_plane: ControlPlane) -> None:
        self._broker_id = ports.broker_id
        self._zookeeper = ports.zookeeper
        self._control_plane = control_plane
        self._listener = ports.config.endpoints.control.name
        self._faults = ports.faults
        self.work = TopicsInWork()

    async def live(self) -> dict[BrokerId, Broker]:
        """Return the registered brokers. Raises CoordinationError."""
        names, _ = await self._zookeeper.children(REGISTRATIONS)
        found = registrations.ids(names, self._faults, REGISTRATIONS)
        return await registrations.read(self._zookeeper, found, self._faults, REGISTRATIONS)

    async def work_on(self, topic: str) -> bool:
        """Return True if another broker creates, extends or deletes this topic now. Raises CoordinationError.

        A broker that does not answer counts as idle: what it has begun then fails at its next write.
        """
        others = [broker for broker in (await self.live()).values() if broker.id != self._broker_id]
        answers = await all_of(self._ask(broker, topic) for broker in others)
        return any(answers)

    async def _ask(self, broker: Broker, topic: str) -> bool:
        body = coordination.encode_topic(topic)
        try:
            answer = await self._call(broker, coordination.TOPIC_IN_WORK, body)
            return coordination.decode_answer(answer)
        except (OSError, KafkaError) as error:
            logger.info("broker %d does not say if it works on %s: %r", broker.id, topic, error)
            return False

    async def look_again(
        self, broker: Broker, look: LookReason, partitions: Iterable[TopicPartition]
    ) -> bool:
        """Let a broker read partitions again; return False if it does not answer."""
        try:
            body = coordination.encode_look(look, partitions)
            await self._call(broker, coordination.LOOK_AGAIN, body)
        except (OSError, KafkaError) as error:
            logger.info("broker %d does not look at its partitions: %r", broker.id, error)
            return False
        return True

    async def _call(self, broker: Broker, method: str, body: dict[str, Any]) -> dict[str, Any]:
        return await call_broker(
            self._control_plane, broker, self._listener, method, body, _CALL_MS
        )


class TopicsInWork:
    """The topics that this broker creates, extends or deletes now.

    Other brokers ask for them: what a living broker has begun is no failed attempt.
    """

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
