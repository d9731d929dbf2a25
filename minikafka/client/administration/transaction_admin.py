"""The administrator's side of transactions (KIP-664): list and describe them, and abort one in a single partition.

Invariant: each transactional id or partition of a request has its own `Outcome`; if one is refused, the others are
still processed. KafkaError is raised only when no broker answered in time, or when the request as a whole was refused.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from minikafka.base.arguments import several
from minikafka.base.errors import ErrorCode, KafkaError
from minikafka.base.meanings import AnsweredError
from minikafka.base.model import BrokerId, Node, TopicPartition
from minikafka.base.open_transactions import holding
from minikafka.client.administration.coordinators import TRANSACTION, Coordinators
from minikafka.client.administration.results import Outcome
from minikafka.client.metadata import Metadata, error_code
from minikafka.client.network import Address, Network, request
from minikafka.client.retries import Retries
from minikafka.kafka.wire import versions

DONE: Final = Outcome(ErrorCode.NONE)


class TransactionListing(NamedTuple):
    """A transactional id in a list. `coordinator`: the broker that listed it."""

    transactional_id: str
    coordinator: BrokerId
    producer_id: int
    state: str


class TransactionDescription(NamedTuple):
    """A transactional id. `start_ms`: Unix ms, None without an open transaction."""

    transactional_id: str
    coordinator: BrokerId
    producer_id: int
    producer_epoch: int
    state: str
    timeout_ms: int
    start_ms: int | None
    partitions: tuple[TopicPartition, ...]


class DescribeTransactionsResult(NamedTuple):
    """The result of DescribeTransactions for one transactional id; `found` is None if the request failed."""

    outcome: Outcome
    found: TransactionDescription | None = None


class ProducerState(NamedTuple):
    """A producer that has written to a partition.

    `coordinator_epoch`: the epoch of its last marker, None without a marker. `start_offset`: the first offset of its
    open transaction, None if it has no open transaction. `last_timestamp`: Unix ms.
    """

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int | None
    last_sequence: int
    last_timestamp: int
    start_offset: int | None


class DescribedProducers(NamedTuple):
    """The result of DescribeProducers for one partition; `producers` is empty if the request failed."""

    outcome: Outcome
    producers: tuple[ProducerState, ...] = ()


class TransactionAdmin:
    """The administrative requests about transactions, available as `client.transactions`."""

    def __init__(
        self,
        network: Network,
        metadata: Metadata,
        retries: Retries,
        request_timeout_ms: int,
    ) -> None:
        self._network = network
        self._metadata = metadata
        self._retries = retries
        self._timeout_ms = request_timeout_ms
        self._coordinators = Coordinators(
            TRANSACTION, network, metadata, retries, request_timeout_ms
        )

    async def list_transactions(
        self,
        states: Iterable[str] = (),
        producer_ids: Iterable[int] = (),
        min_duration_ms: int = -1,
    ) -> list[TransactionListing]:
        """Return the transactional ids of all brokers, sorted by name. Empty filters let every id pass.

        `min_duration_ms`: only transactions that have been open for longer; -1 for any. Raises KafkaError if a broker
        does not answer, because its transactional ids would be missing.
        """
        body = request(
            versions.LIST_TRANSACTIONS,
            state_filters=several(str, states),
            producer_id_filters=several(int, producer_ids),
            duration_filter=min_duration_ms,
        )
        answers = await self._coordinators.call_every_broker(versions.LIST_TRANSACTIONS, body)
        return _listings(answers)

    async def list_those_that_answer(self, states: Iterable[str]) -> list[TransactionListing]:
        """Return the transactional ids in these states, without those of brokers that do not answer."""
        body = request(
            versions.LIST_TRANSACTIONS,
            state_filters=several(str, states),
            producer_id_filters=[],
            duration_filter=-1,
        )
        api = versions.LIST_TRANSACTIONS
        return _listings(await self._coordinators.call_those_that_answer(api, body))

    async def describe(
        self, transactional_ids: Iterable[str]
    ) -> dict[str, DescribeTransactionsResult]:
        """Return the state of these transactional ids. TRANSACTIONAL_ID_NOT_FOUND means that there is no such id."""
        found: dict[str, TransactionDescription] = {}

        def read(node: Node, response: Any) -> dict[str, Outcome]:
            outcomes = {}
            for state in response.transaction_states:
                outcomes[state.transactional_id] = Outcome(error_code(state.error_code))
                found[state.transactional_id] = _description(state, node)
            return outcomes

        api = versions.DESCRIBE_TRANSACTIONS
        outcomes = await self._coordinators.call(
            transactional_ids, api, lambda some: request(api, transactional_ids=some), read
        )
        return {
            name: DescribeTransactionsResult(outcome, found[name] if outcome.ok else None)
            for name, outcome in outcomes.items()
        }

    async def fence(self, transactional_ids: Iterable[str]) -> dict[str, Outcome]:
        """Abort the open transactions of these ids and fence their producers, as a new producer of the id would.

        A producer that is fenced can write nothing more until it starts again. The result comes when the transaction
        has its markers. TRANSACTIONAL_ID_NOT_FOUND means that there is no such id: none is created.
        """
        described = await self.describe(transactional_ids)
        fenced = await asyncio.gather(
            *(self._fence(one.found) for one in described.values() if one.found is not None)
        )
        outcomes = {name: one.outcome for name, one in described.items()}
        return outcomes | {name: outcome for some in fenced for name, outcome in some.items()}

    async def _fence(self, known: TransactionDescription) -> dict[str, Outcome]:
        name, api = known.transactional_id, versions.INIT_PRODUCER_ID

        def read(_: Node, response: Any) -> dict[str, Outcome]:
            code = error_code(response.error_code)
            if code is ErrorCode.CONCURRENT_TRANSACTIONS:  # the transaction is still ending
                raise AnsweredError(code, f"transactional id {name}")
            return {name: Outcome(code)}

        body = request(
            api,
            transactional_id=name,
            transaction_timeout_ms=known.timeout_ms,
            producer_id=-1,
            producer_epoch=-1,
        )
        try:
            return await self._coordinators.call([name], api, lambda _: body, read)
        except KafkaError as error:
            return {name: Outcome(error.code, error.reason)}

    async def describe_producers(
        self, partitions: Iterable[TopicPartition], broker: BrokerId | None = None
    ) -> dict[TopicPartition, DescribedProducers]:
        """Return the producers of these partitions, as the leaders know them, or as the replicas on `broker` do."""
        wanted = list(dict.fromkeys(several(TopicPartition, partitions)))
        results = await asyncio.gather(*(self._producers(tp, broker) for tp in wanted))
        return dict(zip(wanted, results, strict=True))

    async def reason_for_waiting(self, tp: TopicPartition, stable: int) -> str:
        """Return which open transaction holds back the last stable offset `stable`, and how to end it.

        Return "" if no transaction is open. If a broker does not answer, the reason names a command to ask it again.
        """
        described = (await self.describe_producers([tp]))[tp]
        if not described.outcome.ok:
            return holding(tp, stable)
        found = [
            (one.start_offset, one.producer_id)
            for one in described.producers
            if one.start_offset is not None
        ]
        if not found:
            return ""
        start, producer_id = min(found)
        try:
            listed = await self.list_transactions(producer_ids=[producer_id])
        except KafkaError:
            return holding(tp, stable, producer_id, start, is_complete=False)
        name = listed[0].transactional_id if listed else None
        return holding(tp, stable, producer_id, start, name)

    async def _producers(self, tp: TopicPartition, broker: BrokerId | None) -> DescribedProducers:
        api = versions.DESCRIBE_PRODUCERS
        row = {"name": tp.topic, "partition_indexes": [tp.partition]}
        body = request(api, topics=[row])

        async def attempt() -> DescribedProducers:
            address = await self._replica(tp, broker)
            response = await self._network.call(address, api, self._timeout_ms, body)
            answer = response.topics[0].partitions[0]
            _check(answer, tp)
            return DescribedProducers(DONE, tuple(map(_producer_state, answer.active_producers)))

        try:
            return await self._retries(attempt, f"the leader of {tp}", tp)
        except KafkaError as error:
            return DescribedProducers(Outcome(error.code, error.reason))

    async def _replica(self, tp: TopicPartition, broker: BrokerId | None) -> Address:
        """Return the address of the partition's leader, or of `broker`. Raises KafkaError and OSError."""
        if broker is None:
            return (await self._metadata.leader(*tp)).address
        node = (await self._metadata.describe(()))[0].brokers.get(broker)
        if node is None:
            text = f"there is no live broker {broker}"
            raise AnsweredError(ErrorCode.BROKER_NOT_AVAILABLE, str(tp), text)
        return Address(node.host, node.port)

    async def abort(self, tp: TopicPartition, producer: ProducerState) -> Outcome:
        """Write the marker of an abort for this producer into one partition, without its coordinator.

        A producer without a marker of a coordinator gets coordinator epoch 0, which no coordinator's epoch is below.
        """
        api = versions.WRITE_TXN_MARKERS
        row = {"name": tp.topic, "partition_indexes": [tp.partition]}
        marker = {
            "producer_id": producer.producer_id,
            "producer_epoch": producer.producer_epoch,
            "transaction_result": False,
            "topics": [row],
            "coordinator_epoch": producer.coordinator_epoch or 0,
        }
        body = request(api, markers=[marker])

        async def attempt() -> Outcome:
            address = (await self._metadata.leader(*tp)).address
            response = await self._network.call(address, api, self._timeout_ms, body)
            _check(response.markers[0].topics[0].partitions[0], tp)
            return DONE

        try:
            return await self._retries(attempt, f"the leader of {tp}", tp)
        except KafkaError as error:
            return Outcome(error.code, error.reason)


def _listings(answers: Iterable[tuple[Node, Any]]) -> list[TransactionListing]:
    """Return the transactional ids in ListTransactions responses, sorted by name."""
    return sorted(
        TransactionListing(
            state.transactional_id,
            node.id,
            int(state.producer_id),
            state.transaction_state,
        )
        for node, answer in answers
        for state in answer.transaction_states
    )


def _check(answer: Any, tp: TopicPartition) -> None:
    """Raise KafkaError if a broker's answer about the partition has an error code."""
    code = error_code(answer.error_code)
    if code is not ErrorCode.NONE:
        text = getattr(answer, "error_message", None) or ""
        raise AnsweredError(code, str(tp), text)


def _description(state: Any, node: Node) -> TransactionDescription:
    partitions = (
        TopicPartition(topic.topic, number) for topic in state.topics for number in topic.partitions
    )
    return TransactionDescription(
        state.transactional_id,
        node.id,
        int(state.producer_id),
        state.producer_epoch,
        state.transaction_state,
        state.transaction_timeout_ms,
        _known(state.transaction_start_time_ms),
        tuple(sorted(partitions)),
    )


def _producer_state(producer: Any) -> ProducerState:
    return ProducerState(
        int(producer.producer_id),
        producer.producer_epoch,
        _known(producer.coordinator_epoch),
        producer.last_sequence,
        producer.last_timestamp,
        _known(producer.current_txn_start_offset),
    )


def _known(number: int) -> int | None:
    """Return None for -1, which stands for a missing value."""
    return None if number < 0 else number
