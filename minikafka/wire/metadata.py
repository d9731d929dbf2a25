"""The Metadata response, encoded by hand: kio takes milliseconds for a thousand partitions.

Invariant: a topic's bytes depend only on the version and on the arguments, so they may be kept for as
long as the cluster's picture does not change.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from struct import Struct
from typing import Final

from minikafka.base.errors import ErrorCode
from minikafka.base.model import Broker, BrokerId, PartitionState
from minikafka.wire.primitives import (
    INT16,
    INT32,
    NO_TAGS,
    NULL_UUID,
    array,
    compact_array,
    compact_int32_array,
    compact_string,
    int32_array,
    string,
)

FLEXIBLE: Final = 9
NOT_ASKED: Final = -(2**31)
"""Authorized operations when the request did not ask for them."""

_LEADER_NOT_AVAILABLE: Final = int(ErrorCode.LEADER_NOT_AVAILABLE)
_REPLICA_NOT_AVAILABLE: Final = int(ErrorCode.REPLICA_NOT_AVAILABLE)
_PARTITION: Final = Struct(">hii")
_PARTITION_EPOCH: Final = Struct(">hiii")


def encode_topic(
    version: int,
    name: str | None,
    topic_id: bytes | None,
    error: int,
    partitions: Iterable[PartitionState],
    alive: Container[BrokerId],
    operations: int = NOT_ASKED,
) -> bytes:
    """One element of the `topics` array. `alive`: the live brokers; `topic_id`: 16 bytes or None."""
    flexible = version >= FLEXIBLE
    encoded = [_partition(version, state, alive) for state in partitions]
    parts = [INT16.pack(error), compact_string(name) if flexible else string(name or "")]
    if version >= 10:
        parts.append(topic_id or NULL_UUID)
    if version >= 1:
        parts.append(b"\x00")
    parts.append(compact_array(len(encoded)) if flexible else array(len(encoded)))
    parts += encoded
    if version >= 8:
        parts.append(INT32.pack(operations))
    if flexible:
        parts.append(NO_TAGS)
    return b"".join(parts)


def encode(
    version: int,
    brokers: Sequence[Broker],
    cluster_id: str,
    controller_id: BrokerId,
    topics: Sequence[bytes],
    cluster_operations: int = NOT_ASKED,
) -> bytes:
    """The response body, versions 0–12. `topics`: what `encode_topic` made."""
    flexible = version >= FLEXIBLE
    parts = [INT32.pack(0)] if version >= 3 else []
    parts.append(compact_array(len(brokers)) if flexible else array(len(brokers)))
    parts += [_broker(version, broker) for broker in brokers]
    if version >= 2:
        parts.append(compact_string(cluster_id) if flexible else string(cluster_id))
    if version >= 1:
        parts.append(INT32.pack(controller_id))
    parts.append(compact_array(len(topics)) if flexible else array(len(topics)))
    parts += topics
    if 8 <= version <= 10:
        parts.append(INT32.pack(cluster_operations))
    if flexible:
        parts.append(NO_TAGS)
    return b"".join(parts)


def _broker(version: int, broker: Broker) -> bytes:
    text = compact_string if version >= FLEXIBLE else string
    parts = [INT32.pack(broker.id), text(broker.host), INT32.pack(broker.port)]
    if version >= 1:
        parts.append(text(broker.rack))
    if version >= FLEXIBLE:
        parts.append(NO_TAGS)
    return b"".join(parts)


def _partition(version: int, state: PartitionState, alive: Container[BrokerId]) -> bytes:
    """A leader that is not alive is none; version 0 leaves dead replicas out and says so, as Kafka does."""
    leader, error, replicas, isr = state.leader, 0, state.replicas, state.isr
    if leader not in alive:
        leader, error = -1, _LEADER_NOT_AVAILABLE
    if version == 0:
        replicas = tuple(replica for replica in replicas if replica in alive)
        isr = tuple(replica for replica in isr if replica in alive)
        if not error and len(replicas) + len(isr) < len(state.replicas) + len(state.isr):
            error = _REPLICA_NOT_AVAILABLE
    numbers = compact_int32_array if version >= FLEXIBLE else int32_array
    index = state.tp.partition
    if version >= 7:
        head = _PARTITION_EPOCH.pack(error, index, leader, state.leader_epoch)
    else:
        head = _PARTITION.pack(error, index, leader)
    parts = [head, numbers(replicas), numbers(isr)]
    if version >= 5:
        parts.append(numbers(_offline(state, alive)))
    if version >= FLEXIBLE:
        parts.append(NO_TAGS)
    return b"".join(parts)


def _offline(state: PartitionState, alive: Container[BrokerId]) -> list[BrokerId]:
    return [
        replica for replica in state.replicas if replica in state.offline or replica not in alive
    ]
