"""The smallest coordination mode: the brokers of one process share their state, without a controller.

Every broker may carry out administrators' requests. The mode gives orders in the process: a role is fenced only by
the leader epoch of its partition. A broker gets its roles before it registers.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from minikafka.base.config import BrokerConfig
from minikafka.base.errors import ErrorCode, KafkaError
from minikafka.base.model import (
    EPOCH_DURING_DELETE,
    NO_EPOCH,
    NO_LEADER,
    Broker,
    BrokerId,
    ClusterMetadata,
    LeaderAndIsr,
    PartitionResult,
    PartitionState,
    ReplicaAssignment,
    StopReplicaPartition,
    TopicPartition,
)
from minikafka.base.ports import ControlPlane, Gate, Ledger
from minikafka.broker.capabilities import (
    AclListener,
    Capabilities,
    ConfigKind,
    ConfigListener,
    IsrOutcome,
    IsrWrite,
    Orders,
    Overrides,
    PartitionPlan,
    TokenListener,
    TopicPlan,
)
from minikafka.security.acls import AclEntry, ResourcePattern
from minikafka.security.quotas import QuotaEntity
from minikafka.security.tokens import DelegationToken

Result = TypeVar("Result")


class MemoryState:
    """The state of one cluster, and its elections: the first running replica in the ISR leads a partition.

    `opens_later`: a test opens the leaders to clients with `Orders.open`.
    """

    opens_later = False

    def __init__(self) -> None:
        self.orders: dict[BrokerId, Orders] = {}
        """The running brokers, which may not have registered yet."""
        self.brokers: dict[BrokerId, Broker] = {}
        self.topic_ids: dict[str, bytes] = {}
        self.replicas: dict[TopicPartition, tuple[BrokerId, ...]] = {}
        self.states: dict[TopicPartition, LeaderAndIsr] = {}
        self.acls: dict[ResourcePattern, frozenset[AclEntry]] = {}
        self.acl_listeners: list[AclListener] = []
        self.counter = 0
        self.quotas: dict[QuotaEntity, Overrides] = {}
        self.quota_listeners: list[ConfigListener] = []

    def count(self) -> int:
        self.counter += 1
        return self.counter

    async def elect(
        self, *, new: Iterable[TopicPartition] = (), again: Iterable[TopicPartition] = ()
    ) -> None:
        """Remove stopped brokers from ISRs and leaderships, and give the replicas of these partitions their roles.

        The replicas of new partitions, and of the partitions in `again`, get a role in any case.
        """
        new, again = set(new), set(again)
        for tp, state in tuple(self.states.items()):
            running = tuple(id_ for id_ in state.isr if id_ in self.orders)
            leader = state.leader if state.leader in running else (*running, NO_LEADER)[0]
            isr = running or state.isr
            if (leader, isr) == (state.leader, state.isr) and tp not in new | again:
                continue
            self.states[tp] = LeaderAndIsr(
                leader, state.leader_epoch + 1, isr, NO_EPOCH, state.state_version + 1
            )
            for broker_id in self.replicas[tp]:
                await self.give_roles(broker_id, [tp], is_new=tp in new)
        self.publish()

    async def delete(self, topic: str) -> None:
        """Delete the replicas of a topic on the running brokers, and remove the topic from the metadata."""
        tps = [tp for tp in self.states if tp.topic == topic]
        for broker_id, orders in tuple(self.orders.items()):
            hosted = [tp for tp in tps if broker_id in self.replicas[tp]]
            await orders.stop_replicas(
                [StopReplicaPartition(tp, EPOCH_DURING_DELETE, delete=True) for tp in hosted]
            )
        del self.topic_ids[topic]
        for tp in tps:
            del self.states[tp], self.replicas[tp]
        self.publish()

    async def give_roles(
        self, broker_id: BrokerId, tps: Iterable[TopicPartition], *, is_new: bool = False
    ) -> None:
        if broker_id in self.orders:
            roles = [self.role(tp)._replace(is_new=is_new) for tp in tps]
            leaders = self.brokers.values()
            await self.orders[broker_id].change_roles(
                roles, self.topic_ids, leaders, opens_later=self.opens_later
            )

    def role(self, tp: TopicPartition) -> PartitionState:
        state = self.states[tp]
        version = state.state_version
        return PartitionState(
            tp, state.leader, state.leader_epoch, state.isr, version, NO_EPOCH, self.replicas[tp]
        )

    def publish(self) -> None:
        """Give every running broker the metadata of the whole cluster."""
        roles = tuple(map(self.role, self.states))
        brokers, ids = tuple(self.brokers.values()), tuple(self.topic_ids.items())
        for broker_id, orders in self.orders.items():
            orders.update_metadata(ClusterMetadata(broker_id, roles, brokers, ids), is_whole=True)


class MemoryMode:
    """The CoordinationMode of one broker."""

    def __init__(self, broker_id: BrokerId, state: MemoryState) -> None:
        self.broker_id, self.state = broker_id, state

    async def join(self, known: str | None) -> str:
        return "memory-cluster"

    def capabilities(self, control_plane: ControlPlane, ledger: Ledger, gate: Gate) -> Capabilities:
        stores, everybody = MemoryStores(self.state), MemoryAdministration(self.broker_id)
        return Capabilities(
            lifecycle=MemoryLifecycle(self.broker_id, self.state),
            roles=MemoryRoles(self.broker_id, self.state),
            isrs=stores,
            topics=stores,
            configs=stores,
            acls=MemoryAcls(self.state),
            tokens=NoTokens(),
            administration=everybody,
            diagnostics=everybody,
            claim_producer_ids=stores.claim,
        )


class MemoryRoles:
    """The RoleSource of one broker: it has its roles when `start` returns."""

    calls: Mapping[str, Any] = {}
    epoch = NO_EPOCH

    def __init__(self, broker_id: BrokerId, state: MemoryState) -> None:
        self.broker_id, self.state = broker_id, state

    async def start(self, orders: Orders) -> None:
        state = self.state
        hosted = [tp for tp, replicas in state.replicas.items() if self.broker_id in replicas]
        followed = [tp for tp in hosted if state.states[tp].leader in state.orders]
        state.orders[self.broker_id] = orders
        await state.give_roles(self.broker_id, followed)
        await state.elect()


class MemoryLifecycle:
    """The BrokerLifecycle of one broker."""

    session_state = "none"
    session_timeout_ms = 1_000

    def __init__(self, broker_id: BrokerId, state: MemoryState) -> None:
        self.broker_id, self.state = broker_id, state

    async def start(self, broker: Broker, on_registered: Callable[[int], None]) -> None:
        epoch = self.state.count()
        self.state.brokers[broker.id] = replace(broker, epoch=epoch)
        on_registered(epoch)
        self.state.publish()

    async def resign(self) -> None:
        pass

    async def stop(self) -> None:
        del self.state.orders[self.broker_id], self.state.brokers[self.broker_id]
        await self.state.elect()

    def report_lost_connection(self, broker_id: BrokerId) -> None:
        pass

    def report_log_dir_failure(self) -> None:
        pass


class MemoryStores:
    """The stores of the cluster: ISRs and topics. There are no dynamic settings."""

    def __init__(self, state: MemoryState) -> None:
        self.state = state

    async def write(
        self, tp: TopicPartition, state: LeaderAndIsr, is_wanted: Callable[[], bool]
    ) -> IsrWrite:
        if self.state.states[tp].state_version != state.state_version:
            await self.state.elect(again=[tp])
            return IsrWrite(IsrOutcome.CONFLICT)
        self.state.states[tp] = replace(state, state_version=state.state_version + 1)
        self.state.publish()
        return IsrWrite(IsrOutcome.WRITTEN, state.state_version + 1)

    async def names(self) -> list[str]:
        return sorted(self.state.topic_ids)

    async def existing(self, names: Sequence[str], *, half_made: bool = True) -> set[str]:
        return self.state.topic_ids.keys() & set(names)

    async def create(self, plans: Sequence[TopicPlan]) -> dict[str, Exception]:
        new = []
        for plan in plans:
            self.state.topic_ids[plan.name] = plan.topic_id
            for number, replicas in plan.assignment.items():
                new.append(tp := TopicPartition(plan.name, number))
                self.state.replicas[tp] = replicas
                self.state.states[tp] = LeaderAndIsr(NO_LEADER, NO_EPOCH, replicas, NO_EPOCH, 0)
        await self.state.elect(new=new)
        return {}

    async def mark_for_deletion(self, topic: str) -> bool:
        await self.state.delete(topic)
        return True

    async def add_partitions(self, topic: str, plan: PartitionPlan, *, validate_only: bool) -> None:
        raise KafkaError(ErrorCode.INVALID_REQUEST)

    async def topics(self, names: Sequence[str], *, latest: bool = False) -> list[Overrides]:
        return [{} for _ in names]

    async def users(self, names: Sequence[str] | None) -> AsyncIterator[Mapping[str, Overrides]]:
        for item in ():
            yield item

    async def alter(
        self,
        kind: ConfigKind,
        name: str,
        change: Callable[[Overrides], Overrides],
        *,
        validate_only: bool,
    ) -> None:
        raise KafkaError(ErrorCode.INVALID_REQUEST)

    async def alter_quotas(
        self, owner: QuotaEntity, change: Callable[[Overrides], Overrides], *, validate_only: bool
    ) -> None:
        overrides = change(self.state.quotas.get(owner, {}))
        if not validate_only:
            self.state.quotas[owner] = overrides
            for listener in self.state.quota_listeners:
                listener.quotas_configured({owner: overrides})

    def changes(self, listener: ConfigListener) -> NoChanges:
        self.state.quota_listeners.append(listener)
        return NoChanges()

    async def claim(self) -> tuple[int, int]:
        first = self.state.count() * 1_000
        return first, first + 999


class MemoryAcls:
    """The ACLs of the cluster."""

    def __init__(self, state: MemoryState) -> None:
        self.state = state

    async def start(self, listener: AclListener) -> None:
        self.state.acl_listeners.append(listener)
        for pattern, entries in self.state.acls.items():
            listener.update(pattern, entries)

    async def alter(
        self,
        pattern: ResourcePattern,
        change: Callable[[frozenset[AclEntry]], frozenset[AclEntry]],
    ) -> None:
        entries = self.state.acls[pattern] = change(self.state.acls.get(pattern, frozenset()))
        for listener in self.state.acl_listeners:
            listener.update(pattern, entries)


class NoChanges:
    """A ConfigChanges that never reports a change."""

    async def start(self) -> None:
        pass

    async def apply_now(self) -> None:
        pass


class NoTokens:
    """A TokenStore that is not used, because the brokers have no `delegation.token.secret.key`."""

    async def start(self, listener: TokenListener) -> None:
        raise NotImplementedError

    async def create(self, token: DelegationToken) -> None:
        raise NotImplementedError

    async def change(self, token: DelegationToken) -> bool:
        raise NotImplementedError

    async def remove(self, id: str) -> None:
        raise NotImplementedError

    async def refresh(self) -> None:
        raise NotImplementedError


class MemoryAdministration:
    """The Administration and Diagnostics of one broker: every broker may act, and none is the controller."""

    is_active = False
    epoch = NO_EPOCH

    def __init__(self, broker_id: BrokerId) -> None:
        self.controller_id = broker_id

    def check_may_act(self) -> None:
        pass

    async def wait_while_controller(self, call: Awaitable[Result]) -> Result:
        return await call

    async def controlled_shutdown(self, broker_id: int, broker_epoch: int) -> list[TopicPartition]:
        return []  # the partitions get other leaders when the broker stops

    async def alter_reassignments(
        self, targets: Mapping[TopicPartition, tuple[BrokerId, ...] | None]
    ) -> dict[TopicPartition, PartitionResult]:
        return {}

    async def reassignments(self) -> dict[TopicPartition, ReplicaAssignment]:
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
        shown = {"controller_id": self.controller_id, "is_active": False, "epoch": NO_EPOCH}
        return shown | dict.fromkeys(counts, 0)

    def view(self, tp: TopicPartition) -> dict[str, Any] | None:
        return None

    def backlog(self) -> dict[str, int]:
        return {}

    async def plan(self, question: Mapping[str, Any]) -> list[dict[str, Any]]:
        raise KafkaError(ErrorCode.INVALID_REQUEST)
