"""Topics that come into being because a client asked for their metadata (`auto.create.topics.enable`).

Invariant: a topic is asked for once at a time; the controller creates it, by a control-plane call when
that is another broker.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import Any, Final

from minikafka.base.config import BrokerConfig
from minikafka.base.errors import CoordinationError, ErrorCode, KafkaError
from minikafka.base.ports import ControlPlane, Tasks
from minikafka.broker.admin.fenced import Controller
from minikafka.broker.admin.names import colliding, name_error
from minikafka.broker.admin.topics import NewTopic, TopicAdmin
from minikafka.broker.metadata import MetadataCache
from minikafka.rpc import messages

logger = logging.getLogger(__name__)

AUTO_CREATE_TIMEOUT_MS: Final = 10_000


class AutoCreate:
    """Has topics created as the configuration says, in the background."""

    def __init__(
        self,
        topics: TopicAdmin,
        controller: Controller,
        metadata: MetadataCache,
        config: BrokerConfig,
        tasks: Tasks,
        control_plane: ControlPlane,
    ) -> None:
        self._topics = topics
        self._controller = controller
        self._metadata = metadata
        self._config = config
        self._tasks = tasks
        self._control_plane = control_plane
        self._creating: set[str] = set()

    def start(self, names: Iterable[str]) -> dict[str, ErrorCode]:
        """Have the topics created as the configuration says; the error a client gets meanwhile, per topic."""
        errors = {}
        wanted = []
        for name in dict.fromkeys(names):
            errors[name] = self._error(name)
            if errors[name] == ErrorCode.LEADER_NOT_AVAILABLE and name not in self._creating:
                wanted.append(name)
        if wanted:
            self._creating.update(wanted)
            self._tasks.spawn(self._create(wanted), "auto-create topics")
        return errors

    def _error(self, name: str) -> ErrorCode:
        if name_error(name) or colliding(name, self._metadata.topics) is not None:
            return ErrorCode.INVALID_TOPIC_EXCEPTION
        if self._config.default_replication_factor > len(self._metadata.brokers):
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
        partitions = self._config.num_partitions
        replication_factor = self._config.default_replication_factor
        body = messages.encode_create_topics(
            messages.NewTopic(name, partitions, replication_factor) for name in names
        )
        if self._controller.is_active:
            return messages.decode_created(await self.handle_create_topics(body))
        controller = self._metadata.brokers.get(self._controller.controller_id)
        listener = self._config.endpoints.control.name
        endpoint = controller.endpoint(listener) if controller else None
        if endpoint is None:
            raise KafkaError(ErrorCode.NOT_CONTROLLER, "no controller is known")
        answer = await self._control_plane.call(
            endpoint.host,
            endpoint.port,
            messages.CREATE_TOPICS,
            body,
            timeout_ms=AUTO_CREATE_TIMEOUT_MS,
        )
        return messages.decode_created(answer)

    async def handle_create_topics(self, body: dict[str, Any]) -> dict[str, Any]:
        """The controller's side of auto-create, a control-plane call. Raises KafkaError(INVALID_REQUEST)."""
        topics = [
            NewTopic(topic.name, topic.partitions, topic.replication_factor)
            for topic in messages.decode_create_topics(body)
        ]
        results = await self._topics.create_topics(topics, AUTO_CREATE_TIMEOUT_MS // 2)
        return messages.encode_created((result.name, result.error) for result in results)
