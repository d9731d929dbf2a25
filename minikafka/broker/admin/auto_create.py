"""Automatic creation of topics.

A metadata request creates missing topics (`auto.create.topics.enable`), and a coordinator lookup creates the
coordinator's internal topic. The controller creates the topics: every other broker sends it a
control-plane request. Invariant: at most one creation of a topic is in progress.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterable, Sequence
from itertools import islice
from typing import Any, Final

from minikafka.base.config import BrokerConfig
from minikafka.base.errors import CoordinationError, ErrorCode, KafkaError
from minikafka.base.model import RequestedTopic
from minikafka.base.ports import Tasks
from minikafka.broker.admin.names import TakenNames, name_error
from minikafka.broker.admin.topics import TopicAdmin
from minikafka.broker.controller_client import ControllerClient
from minikafka.broker.metadata import MetadataCache
from minikafka.broker.rpc import messages
from minikafka.deciders.controller.assignments import PARTITIONS_MAX

logger = logging.getLogger(__name__)

AUTO_CREATE_TIMEOUT_MS: Final = 10_000


class AutoCreate:
    """Creates topics in the background, with the default number of partitions and replicas.

    A topic that `define` was called for, such as `__consumer_offsets`, gets the settings given there.
    """

    def __init__(
        self,
        topics: TopicAdmin,
        client: ControllerClient,
        metadata: MetadataCache,
        config: BrokerConfig,
        tasks: Tasks,
    ) -> None:
        self._topics = topics
        self._client = client
        self._metadata = metadata
        self._config = config
        self._tasks = tasks
        self._defined: dict[str, RequestedTopic] = {}
        self._creating: set[str] = set()

    def define(self, topic: RequestedTopic) -> None:
        """Set the number of partitions and replicas and the settings with which this topic is created."""
        self._defined[topic.name] = topic

    def start(self, name: str) -> ErrorCode:
        """Start creating the topic if possible; return the error code for the client.

        LEADER_NOT_AVAILABLE: the topic is being created. Any other error: the topic cannot be created.
        """
        error = self._error(name, TakenNames(self._metadata.topics))
        if error == ErrorCode.LEADER_NOT_AVAILABLE:
            self._begin([name])
        return error

    def start_all(
        self, names: Iterable[str], record: Callable[[int], None]
    ) -> Generator[None, None, dict[str, ErrorCode]]:
        """Start creating the topics; return topic -> error code for the client.

        The error codes are those of `start`. Yields after each topic, so that the caller can serve other
        connections. Creates at most `PARTITIONS_MAX` topics, the same limit as for the partitions of a
        CreateTopics request. `record(partitions)` is called for each topic whose creation begins.
        """
        errors: dict[str, ErrorCode] = {}
        taken = TakenNames(self._metadata.topics)
        for name in names:
            errors[name] = self._error(name, taken)
            yield
        wanted = (name for name, code in errors.items() if code == ErrorCode.LEADER_NOT_AVAILABLE)
        for name in self._begin(islice(wanted, PARTITIONS_MAX)):
            record(self._new_topic(name).partitions)
        return errors

    def _begin(self, names: Iterable[str]) -> list[str]:
        """Begin to create the topics that are not being created yet; return them."""
        wanted = [name for name in names if name not in self._creating]
        if wanted:
            self._creating.update(wanted)
            self._tasks.spawn(self._create(wanted), "auto-create topics")
        return wanted

    def _error(self, name: str, taken: TakenNames) -> ErrorCode:
        if name_error(name) or taken.colliding(name) is not None:
            return ErrorCode.INVALID_TOPIC_EXCEPTION
        if self._new_topic(name).replication_factor > len(self._metadata.brokers):
            return ErrorCode.INVALID_REPLICATION_FACTOR
        return ErrorCode.LEADER_NOT_AVAILABLE

    async def _create(self, names: Sequence[str]) -> None:
        try:
            errors = await self._create_or_ask(names)
            for name, code in errors.items():
                if code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                    logger.warning("topic %s was not created: %s", name, ErrorCode(code).name)
        except (OSError, KafkaError, CoordinationError) as error:
            logger.warning("topics %s were not created: %s", names, error)
        finally:
            self._creating.difference_update(names)

    async def _create_or_ask(self, names: Sequence[str]) -> dict[str, int]:
        body = messages.encode_create_topics(self._new_topic(name) for name in names)
        answer = await self._client.call(messages.CREATE_TOPICS, body, AUTO_CREATE_TIMEOUT_MS)
        return messages.decode_created(answer)

    def _new_topic(self, name: str) -> RequestedTopic:
        config = self._config
        return self._defined.get(name) or RequestedTopic(
            name, config.num_partitions, config.default_replication_factor
        )

    async def handle_create_topics(self, body: dict[str, Any]) -> dict[str, Any]:
        """Handle a broker's control-plane request to create topics. Raises KafkaError INVALID_REQUEST."""
        topics = messages.decode_create_topics(body)
        results = await self._topics.create_topics(topics, AUTO_CREATE_TIMEOUT_MS // 2)
        return messages.encode_created((result.name, result.error) for result in results)
