"""A minimal coordination mode without ZooKeeper, for a cluster of one broker."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from minikafka.base.config import BrokerConfig
from minikafka.base.errors import ErrorCode, KafkaError
from minikafka.base.model import (
    Broker,
    ControllerRequest,
    LeaderAndIsr,
    LeaderAndIsrRequest,
    PartitionResult,
    PartitionState,
    ReplicaAssignment,
    TopicPartition,
    UpdateMetadataRequest,
)
from minikafka.base.ports import ControlPlane, Gate, Ledger
from minikafka.broker.capabilities.mode import Capabilities
from minikafka.broker.capabilities.stores import (
    ConfigKind,
    ConfigListener,
    IsrOutcome,
    IsrWrite,
    Overrides,
    PartitionPlan,
    TopicPlan,
)
from minikafka.rpc import messages

Result = TypeVar("Result")

CONTROLLER_EPOCH = BROKER_EPOCH = 1


class SoloMode:
    """The CoordinationMode port: every broker is its own cluster."""

    async def join(self) -> str:
        return "solo-cluster"

    def capabilities(self, control_plane: ControlPlane, ledger: Ledger, gate: Gate) -> Capabilities:
        solo = SoloMembership(control_plane)
        return Capabilities(
            solo, SoloIsrs(), solo.topics, SoloConfigs(), solo, solo.controller, solo.controller
        )


class SoloMembership:
    """The broker is the controller and sends controller requests to itself."""

    session_state = "solo"
    session_timeout_ms = 1_000

    def __init__(self, control_plane: ControlPlane) -> None:
        self.topics = SoloTopics(self.send)
        self.controller = SoloController()
        self._control_plane = control_plane
        self._broker = Broker(0, ())
        self._producer_ids = 0

    async def start(self, broker: Broker, on_registered: Callable[[int], None]) -> None:
        self._broker = replace(broker, epoch=BROKER_EPOCH)
        self.controller.controller_id = broker.id
        on_registered(BROKER_EPOCH)
        await self.send((), {})

    async def resign(self) -> None:
        pass

    async def stop(self) -> None:
        pass

    def report_log_dir_failure(self) -> None:
        pass

    async def claim(self) -> tuple[int, int]:
        self._producer_ids += 1000
        return self._producer_ids - 1000, self._producer_ids - 1

    async def send(
        self, states: tuple[PartitionState, ...], topic_ids: Mapping[str, bytes]
    ) -> None:
        """Send the partition states in LeaderAndIsr and then in UpdateMetadata, as a real controller does."""
        common = (CONTROLLER_EPOCH, BROKER_EPOCH, states, (self._broker,), tuple(topic_ids.items()))
        requests: list[ControllerRequest] = [UpdateMetadataRequest(self._broker.id, *common)]
        if states:
            requests.insert(0, LeaderAndIsrRequest(self._broker.id, *common))
        for request in requests:
            method, body = messages.encode(request)
            address = self._broker.endpoint("CONTROLLER")
            assert address is not None
            answer = await self._control_plane.call(
                address.host,
                address.port,
                method,
                body,
                target_id=self._broker.id,
                timeout_ms=1_000,
            )
            assert messages.decode_response(answer).error == 0


class SoloIsrs:
    """An IsrStore that accepts every write: the leader is always the only ISR member."""

    async def write(
        self, tp: TopicPartition, state: LeaderAndIsr, is_wanted: Callable[[], bool]
    ) -> IsrWrite:
        return IsrWrite(IsrOutcome.WRITTEN, state.state_version + 1)


class SoloTopics:
    """A TopicStore in memory."""

    def __init__(
        self,
        send: Callable[[tuple[PartitionState, ...], Mapping[str, bytes]], Awaitable[None]],
    ) -> None:
        self._send = send
        self._topics: set[str] = set()

    async def names(self) -> list[str]:
        return sorted(self._topics)

    async def existing(self, names: Sequence[str]) -> set[str]:
        return self._topics.intersection(names)

    async def create(self, plans: Sequence[TopicPlan]) -> dict[str, Exception]:
        for plan in plans:
            self._topics.add(plan.name)
            states = tuple(
                PartitionState(
                    TopicPartition(plan.name, number),
                    replicas[0],
                    0,
                    replicas,
                    0,
                    CONTROLLER_EPOCH,
                    replicas,
                    is_new=True,
                )
                for number, replicas in plan.assignment.items()
            )
            await self._send(states, {plan.name: plan.topic_id})
        return {}

    async def mark_for_deletion(self, topic: str) -> bool:
        raise KafkaError(ErrorCode.TOPIC_DELETION_DISABLED)

    async def add_partitions(self, topic: str, plan: PartitionPlan, *, validate_only: bool) -> None:
        raise KafkaError(ErrorCode.INVALID_REQUEST)


class SoloConfigs:
    """A ConfigStore without settings."""

    async def topics(self, names: Sequence[str], *, latest: bool = False) -> list[Overrides]:
        return [{} for _ in names]

    async def alter(
        self,
        kind: ConfigKind,
        name: str,
        change: Callable[[Overrides], Overrides],
        *,
        validate_only: bool,
    ) -> None:
        raise KafkaError(ErrorCode.INVALID_REQUEST)

    def changes(self, listener: ConfigListener) -> SoloConfigChanges:
        return SoloConfigChanges()


class SoloConfigChanges:
    """A ConfigChanges that never reports a change."""

    async def start(self) -> None:
        pass

    async def apply_now(self) -> None:
        pass


class SoloController:
    """An `Administration` whose operations change nothing, and the `Diagnostics` of one broker."""

    controller_id = -1
    is_active = True
    epoch = CONTROLLER_EPOCH

    async def wait_while_controller(self, call: Awaitable[Result]) -> Result:
        return await call

    def check_may_act(self) -> None:
        pass

    async def controlled_shutdown(self, broker_id: int, broker_epoch: int) -> list[TopicPartition]:
        return []

    async def alter_reassignments(
        self, targets: Mapping[TopicPartition, tuple[int, ...] | None]
    ) -> dict[TopicPartition, PartitionResult]:
        return {}

    def reassignments(self) -> dict[TopicPartition, ReplicaAssignment]:
        return {}

    async def elect_leaders(
        self, *, unclean: bool, partitions: Sequence[TopicPartition] | None
    ) -> dict[TopicPartition, PartitionResult]:
        return {}

    def set_broker_defaults(self, config: BrokerConfig) -> None:
        pass

    def summary(self) -> dict[str, Any]:
        counts = (
            "queue_size",
            "offline_partition_count",
            "preferred_replica_imbalance_count",
            "topic_count",
            "partition_count",
            "replicas_to_delete",
            "replicas_ineligible_for_deletion",
        )
        return {
            "controller_id": self.controller_id,
            "is_active": True,
            "epoch": self.epoch,
        } | dict.fromkeys(counts, 0)

    def view(self, tp: TopicPartition) -> dict[str, Any] | None:
        return None

    def backlog(self) -> dict[str, int]:
        return {}

    async def plan(self, question: Mapping[str, Any]) -> list[dict[str, Any]]:
        raise KafkaError(ErrorCode.INVALID_REQUEST)
