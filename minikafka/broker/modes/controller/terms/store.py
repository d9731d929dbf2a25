"""The reads and writes of the active controller in ZooKeeper: one method for each kind of read or write.

Invariant: every write goes through the term's session, so that no write succeeds after another controller was elected.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from minikafka.base.config import BrokerConfig, TopicConfig
from minikafka.base.config.keys import usable
from minikafka.base.errors import (
    BadVersion,
    ConfigError,
    CoordinationError,
    MinikafkaError,
    NoNode,
    NotEmpty,
    ServerVerdict,
    TooLarge,
)
from minikafka.base.model import BrokerId, ReplicaAssignment, TopicPartition
from minikafka.base.ports import Check, Delete, MultiOp, Stat, Znode
from minikafka.broker.modes.controller.terms.term_session import TermSession, batches, raise_unless
from minikafka.broker.side_by_side import all_of
from minikafka.deciders.controller.commands import ElectionSettings
from minikafka.zookeeper.nodes import admin_requests, configs, layout, topics
from minikafka.zookeeper.nodes.reader import get_one
from minikafka.zookeeper.nodes.topics import Topic

logger = logging.getLogger(__name__)

_DELETIONS_IN_FLIGHT: Final = 16
"""Topics whose nodes are deleted at the same time."""


class _NotWritten(MinikafkaError):
    """A topic node cannot be changed; the message is the reason."""


class ControllerStore:
    """The reads and writes of one controller term; `config` has the broker settings that topics inherit."""

    def __init__(self, session: TermSession, config: BrokerConfig) -> None:
        self.session = session
        self._config = config

    def set_broker_defaults(self, config: BrokerConfig) -> None:
        """Replace the broker settings that topics inherit."""
        self._config = config

    async def read_election_settings(self, names: Sequence[str]) -> dict[str, ElectionSettings]:
        """Return the settings of each topic on which elections depend, from its overrides or the broker's defaults.

        A topic whose settings cannot be read or used allows no unclean election (H4).
        """
        entities = [configs.Entity(configs.TOPICS, name) for name in names]
        stored = await configs.read_strictly(self.session, entities, self.session.faults)
        return {
            name: self._election_settings(name, overrides)
            for name, overrides in zip(names, stored, strict=True)
        }

    def _election_settings(self, topic: str, stored: Mapping[str, str] | None) -> ElectionSettings:
        safest = ElectionSettings(False, self._config.min_insync_replicas)
        if stored is None:
            return safest
        overrides, _ = usable(TopicConfig.keys(), stored)
        try:
            config = TopicConfig.from_broker(self._config, overrides)
        except ConfigError as error:
            logger.error("settings of topic %s are not usable: %s", topic, error)
            return safest
        return ElectionSettings(config.unclean_leader_election_enable, config.min_insync_replicas)

    # Topic nodes.

    async def write_assignments(
        self,
        changes: Mapping[str, Mapping[int, ReplicaAssignment | None]],
        submitted: Mapping[TopicPartition, tuple[BrokerId, ...]],
    ) -> dict[str, str]:
        """Write the assignments of partitions to topic nodes; return topic -> reason for those not written.

        An assignment of None removes the partition.

        `submitted`: target replicas by partition. A topic with partitions in `submitted` is written only if
        `/admin/reassign_partitions` still has these targets. Raises ControllerMoved, StaleSession.
        """
        failed: dict[str, str] = {}

        async def write(topic: str, partitions: Mapping[int, ReplicaAssignment | None]) -> None:
            try:
                asked = {tp: target for tp, target in submitted.items() if tp.topic == topic}
                await self._change_topic(topic, lambda node, _: _merged(node, partitions), asked)
            except _NotWritten as error:
                failed[topic] = str(error)

        await all_of(write(topic, partitions) for topic, partitions in changes.items())
        return failed

    async def give_topic_ids(self, ids: Mapping[str, bytes | None]) -> dict[str, bytes]:
        """Write ids into topic nodes that have no id; return the current ids.

        `ids`: topic -> id, or None for an id that is derived from the topic's name and the node's czxid. No id is
        derived for a topic whose partitions exist already. Raises ControllerMoved, StaleSession.
        """
        parents = await self.session.get_many(list(map(layout.partitions_path, ids)))
        given: dict[str, bytes] = {}

        async def give(topic: str, former_id: bytes | None) -> None:
            def with_id(node: Topic, stat: Stat) -> Topic:
                new_id = former_id or layout.topic_id_of_node(topic, stat.czxid)
                return node._replace(topic_id=node.topic_id or new_id)

            try:
                node = await self._change_topic(topic, with_id)
            except _NotWritten as error:
                logger.error("no id was written for topic %s: %s", topic, error)
            else:
                assert node.topic_id is not None
                given[topic] = node.topic_id

        await all_of(
            give(topic, former_id)
            for (topic, former_id), parent in zip(ids.items(), parents, strict=True)
            if former_id is not None or parent is None
        )
        return {topic: given[topic] for topic in ids if topic in given}

    async def _change_topic(
        self,
        topic: str,
        change: Callable[[Topic, Stat], Topic],
        submitted: Mapping[TopicPartition, tuple[BrokerId, ...]] | None = None,
    ) -> Topic:
        """Replace the content of a topic's node by `change(content, Stat)`; return the new content.

        `submitted`: target replicas by partition. If any are given, the node is written only if
        `/admin/reassign_partitions` still has these targets. Raises _NotWritten if the node cannot be written.
        """
        content = Topic(None, {})

        async def operations() -> list[MultiOp]:
            nonlocal content
            node = await get_one(self.session, layout.topic_path(topic))
            if node is None:
                raise _NotWritten("the topic is gone")
            before = _decoded(node)
            content = change(before, node.stat)
            if content == before:
                return []
            still_asked = [await self._still_asked(submitted)] if submitted else []
            return [*still_asked, topics.replacement(topic, content, node.stat.version)]

        async def before_retry(error: CoordinationError, _: MultiOp | None) -> None:
            raise_unless(error, BadVersion, NoNode)

        try:
            await self.session.compare_and_set(operations, before_retry)
        except TooLarge as error:
            raise _NotWritten("the assignment is too large for ZooKeeper") from error
        except ServerVerdict as error:
            raise _NotWritten(f"{type(error).__name__} {error}") from error
        return content

    async def _still_asked(self, submitted: Mapping[TopicPartition, tuple[BrokerId, ...]]) -> Check:
        node = await get_one(self.session, layout.REASSIGN_PARTITIONS)
        if node is None or not admin_requests.asks_for(node, submitted):
            raise _NotWritten("the request was taken back")
        return Check(layout.REASSIGN_PARTITIONS, node.stat.version)

    # Administrators' requests.

    async def trim_reassignments(
        self, finished: Mapping[TopicPartition, tuple[BrokerId, ...]]
    ) -> None:
        """Remove finished reassignments from `/admin/reassign_partitions`; delete the node if it is empty (A11)."""

        async def operations() -> list[MultiOp]:
            node = await get_one(self.session, layout.REASSIGN_PARTITIONS)
            change = None if node is None else admin_requests.without(node, finished)
            return [] if change is None else [change]

        async def before_retry(error: CoordinationError, refused: MultiOp | None) -> None:
            raise_unless(error, BadVersion, NoNode, NotEmpty)
            if isinstance(error, NotEmpty) and refused is not None:
                await self.session.delete_below([refused.path])

        try:
            await self.session.compare_and_set(operations, before_retry)
        except ServerVerdict as error:
            logger.error(
                "finished reassignments not removed from %s: %s",
                layout.REASSIGN_PARTITIONS,
                error,
            )

    async def delete_topics(self, names: Iterable[str]) -> dict[str, str]:
        """Delete the topics' nodes, settings and deletion marks; return topic -> reason of failure (R64, A16)."""
        failed: dict[str, str] = {}

        async def delete(topic: str) -> None:
            try:
                await self._delete_topic(topic)
            except ServerVerdict as error:
                failed[topic] = f"{type(error).__name__} {error}"

        for window in batches(names, _DELETIONS_IN_FLIGHT):
            await all_of(map(delete, window))
        return failed

    async def _delete_topic(self, topic: str) -> None:
        """Delete the topic's node, its settings, its deletion mark, and all nodes below these three nodes.

        The three nodes are deleted last and in one multi, so that the topic can be created again as soon as its
        node is gone. After a lost answer, a topic node with another czxid shows that the deletion succeeded and
        the topic was created again.
        """
        paths = [
            layout.topic_path(topic),
            configs.path_of(configs.Entity(configs.TOPICS, topic)),
            layout.delete_topic_path(topic),
        ]
        seen: list[Znode | None] = []
        """The topic's node as it was read at each attempt."""

        async def operations() -> list[MultiOp]:
            nodes = await self.session.get_many(paths)
            seen.append(nodes[0])
            if not any(nodes) or _was_created_since(nodes[0], seen[0]):
                return []
            await self.session.delete_below(paths)
            return [Delete(path, -1) for path, node in zip(paths, nodes, strict=True) if node]

        async def before_retry(error: CoordinationError, _: MultiOp | None) -> None:
            raise_unless(error, NoNode, NotEmpty)

        await self.session.compare_and_set(operations, before_retry)


def _decoded(node: Znode) -> Topic:
    try:
        return topics.decode(node.data)
    except ValueError as error:
        raise _NotWritten(f"the topic's node is not readable: {error}") from error


def _merged(node: Topic, changes: Mapping[int, ReplicaAssignment | None]) -> Topic:
    """Return the topic node with the changes applied; return `node` itself if nothing changes."""
    if all(node.assignment.get(number) == wanted for number, wanted in changes.items()):
        return node
    merged = {**node.assignment, **changes}
    return node._replace(
        assignment={number: entry for number, entry in sorted(merged.items()) if entry}
    )


def _was_created_since(node: Znode | None, before: Znode | None) -> bool:
    """True if `node` was created after the earlier read that returned `before` (None: no node)."""
    return node is not None and (before is None or node.stat.czxid != before.stat.czxid)
