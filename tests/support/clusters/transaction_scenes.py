"""Requests about transactions, most of them wrong, which a test can send to brokers of several products.

`answers_of(send)` returns (request, codes) pairs without ids and times. The answers of Apache Kafka 3.9.0 are in
`tests/conformance/transactions/answers_of_kafka_39.jsonl`.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any, TypeAlias

from minikafka.base.errors import ErrorCode
from minikafka.kafka.records.batch import Record, build
from minikafka.kafka.records.header import TRANSACTIONAL
from minikafka.kafka.wire.versions import (
    ADD_OFFSETS_TO_TXN,
    ADD_PARTITIONS_TO_TXN,
    CREATE_TOPICS,
    DESCRIBE_PRODUCERS,
    DESCRIBE_TRANSACTIONS,
    END_TXN,
    FIND_COORDINATOR,
    INIT_PRODUCER_ID,
    LIST_TRANSACTIONS,
    OFFSET_FETCH,
    PRODUCE,
    SERVED,
    TXN_OFFSET_COMMIT,
)

Send: TypeAlias = Callable[..., Awaitable[Any]]
"""Function (API, version, fields) -> decoded response of the only broker."""
RECORDED = Path(__file__).parents[2] / "conformance" / "transactions" / "answers_of_kafka_39.jsonl"
TRIES = 600
WAIT_SECONDS = 0.05
MAX_TIMEOUT_MS = 900_000
"""The default of `transaction.max.timeout.ms`."""
ID_MAX = "x" * 32_767
"""The longest transactional id that fits into a record of `__transaction_state`."""
UNREADY = frozenset(
    {
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.CONCURRENT_TRANSACTIONS,
    }
)


class Scenes:
    """The requests of one run, and the answers so far."""

    def __init__(self, send: Send) -> None:
        self.send = send
        self.answers: list[tuple[str, Any]] = []
        self.producer_id = self.epoch = -1

    def note(self, request: str, *codes: Any) -> None:
        self.answers.append((request, codes if len(codes) > 1 else codes[0]))

    async def until_ready(self, api: int, version: int, **values: Any) -> Any:
        """Send a request until the coordinator is ready for it."""
        for _ in range(TRIES):
            answer = await self.send(api, version, **values)
            if not UNREADY & codes_of(answer):
                return answer
            await asyncio.sleep(WAIT_SECONDS)
        raise AssertionError(f"no end of {answer}")

    # ---- coordinators and ids

    async def find(self) -> None:
        for version in range(1, SERVED[FIND_COORDINATOR][1] + 1):
            for key_type in (1, 77):
                keys = {"key": "tx"} if version < 4 else {"coordinator_keys": ["tx", ""]}
                ask = self.until_ready if key_type == 1 else self.send
                answer = await ask(FIND_COORDINATOR, version, **keys, key_type=key_type)
                rows = [answer] if version < 4 else answer.coordinators
                found = [(int(row.error_code), row.node_id >= 0) for row in rows]
                self.note(f"FindCoordinator {version} type {key_type}", found)

    async def init(self, name: str = "tx", version: int = 5, **values: Any) -> Any:
        fields = {"transactional_id": name, "transaction_timeout_ms": 60_000, **values}
        answer = await self.until_ready(INIT_PRODUCER_ID, version, **fields)
        if not answer.error_code:
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
        return answer

    async def initialize(self) -> None:
        for version in range(6):
            answer = await self.init(version=version)
            self.note(f"InitProducerId {version}", int(answer.error_code), answer.producer_epoch)
            answer = await self.init("", version)
            self.note(f"InitProducerId {version} of an empty id", int(answer.error_code))
        for timeout in (0, -1, MAX_TIMEOUT_MS + 1, 2**31 - 1, -(2**31)):
            answer = await self.init(transaction_timeout_ms=timeout)
            self.note(f"InitProducerId with timeout {timeout}", int(answer.error_code))
        longest = await self.init(ID_MAX, transaction_timeout_ms=MAX_TIMEOUT_MS)
        self.note("InitProducerId of the longest id", int(longest.error_code))
        await self.init()
        await self.recover()

    async def recover(self) -> None:
        """InitProducerId with an id and epoch (KIP-360)."""
        known, epoch = self.producer_id, self.epoch
        for title, producer_id, old in (
            ("its epoch", known, epoch),
            ("the epoch before", known, epoch),
            ("an older epoch", known, epoch - 2),
            ("a later epoch", known, epoch + 9),
            ("another id", known + 1_000_000, epoch + 1),
            ("no epoch", known, -1),
            ("no id", -1, epoch),
        ):
            for version in (3, 4, 5):
                answer = await self.init(
                    version=version, producer_id=producer_id, producer_epoch=old
                )
                self.note(
                    f"InitProducerId {version} with {title}",
                    int(answer.error_code),
                    answer.producer_epoch,
                )
        await self.init()

    # ---- partitions

    def producer(self, **changes: Any) -> dict[str, Any]:
        fields = {
            "transactional_id": "tx",
            "producer_id": self.producer_id,
            "producer_epoch": self.epoch,
        }
        return {**fields, **changes}

    def wrong_producers(self) -> Iterable[tuple[str, dict[str, Any]]]:
        yield "an unknown id", self.producer(transactional_id="unknown")
        yield "an empty id", self.producer(transactional_id="")
        yield "a wrong producer id", self.producer(producer_id=self.producer_id + 1_000_000)
        yield "no producer id", self.producer(producer_id=-1)
        yield "a former epoch", self.producer(producer_epoch=self.epoch - 1)
        yield "a later epoch", self.producer(producer_epoch=self.epoch + 1)
        yield "no epoch", self.producer(producer_epoch=-1)

    async def add(self, version: int, producer: dict[str, Any], **topics: list[int]) -> Any:
        rows = [{"name": name, "partitions": numbers} for name, numbers in topics.items()]
        fields = {**producer, "topics": rows}
        return await self.send(
            ADD_PARTITIONS_TO_TXN,
            version,
            **{f"v3_and_below_{name}": value for name, value in fields.items()},
        )

    async def add_partitions(self) -> None:
        for version in range(4):
            for title, producer in self.wrong_producers():
                answer = await self.add(version, producer, t=[0])
                self.note(f"AddPartitionsToTxn {version} of {title}", rows_of(answer))
            for topics in ({"t": [0, 2]}, {"t": [0], "gone": [0]}, {"t": [-1]}, {}):
                answer = await self.add(version, self.producer(), **topics)
                self.note(f"AddPartitionsToTxn {version} of {topics}", rows_of(answer))
        answer = await self.add(3, self.producer(), t=[0, 0])
        self.note("AddPartitionsToTxn 3 of a partition twice", rows_of(answer)[:1])
        for version in (4, 5):
            await self.add_or_verify(version)

    async def add_or_verify(self, version: int) -> None:
        for verify_only in (False, True):
            for title, producer in (("the producer", self.producer()), *self.wrong_producers()):
                topics = {"t": [0] if verify_only is False else [0, 1]}, {"t": [0], "gone": [1]}
                for named in topics:
                    rows = [{"name": name, "partitions": n} for name, n in named.items()]
                    entry = {**producer, "verify_only": verify_only, "topics": rows}
                    answer = await self.send(ADD_PARTITIONS_TO_TXN, version, transactions=[entry])
                    (result,) = answer.results_by_transaction
                    what = "Verify" if verify_only else "Add"
                    self.note(
                        f"{what} {version} of {named} for {title}",
                        int(answer.error_code),
                        rows_of(result, "topic_results"),
                    )

    # ---- records

    async def produce(
        self, number: int, transactional_id: str | None = "tx", **changes: Any
    ) -> Any:
        fields = {
            "producer_id": self.producer_id,
            "producer_epoch": self.epoch,
            "base_sequence": 0,
            "attributes": TRANSACTIONAL,
            **changes,
        }
        batch = build([Record(0, 1_000, None, b"value")], **fields)
        answer = await self.send(
            PRODUCE,
            fields.pop("version", 11),
            transactional_id=transactional_id,
            acks=-1,
            timeout_ms=10_000,
            topic_data=[
                {"name": "t", "partition_data": [{"index": number, "records": batch}]},
            ],
        )
        return int(answer.responses[0].partition_responses[0].error_code)

    async def write(self) -> None:
        """Produce to t-1, which is not in the transaction, and to t-0, which is in it."""
        self.note("Produce outside of the transaction", await self.produce(1))
        self.note("Produce without a transactional id", await self.produce(0, None))
        self.note("Produce of an unknown id", await self.produce(0, "unknown"))
        later = self.epoch + 1
        self.note("Produce of a later epoch", await self.produce(0, producer_epoch=later))
        self.note("Produce", await self.produce(0))
        former = self.epoch - 1
        self.note("Produce of a former epoch", await self.produce(0, producer_epoch=former))
        self.note(
            "Produce outside of a transaction", await self.produce(0, attributes=0, base_sequence=1)
        )
        topics = [{"name": "t", "partition_indexes": [0, 1, 2]}]
        answer = await self.send(DESCRIBE_PRODUCERS, 0, topics=topics)
        for row in answer.topics[0].partitions:
            producers = [
                (
                    entry.producer_id == self.producer_id,
                    entry.producer_epoch == self.epoch,
                    entry.last_sequence,
                    entry.coordinator_epoch,
                    entry.current_txn_start_offset,
                )
                for entry in row.active_producers
            ]
            self.note(f"DescribeProducers {row.partition_index}", int(row.error_code), producers)

    # ---- offsets

    async def offsets(self) -> None:
        named = [("t", 0), ("t", 2), ("gone", 0)]
        first = await self.commit(4, self.producer(), "other", named)
        self.note("TxnOffsetCommit of a group outside of the transaction", first)
        for version in range(5):
            for title, producer in self.wrong_producers():
                answer = await self.send(ADD_OFFSETS_TO_TXN, version, **producer, group_id="g")
                self.note(f"AddOffsetsToTxn {version} of {title}", int(answer.error_code))
            answer = await self.until_ready(
                ADD_OFFSETS_TO_TXN, version, **self.producer(), group_id="g"
            )
            self.note(f"AddOffsetsToTxn {version}", int(answer.error_code))
        for version in range(5):
            for title, producer in self.wrong_producers():
                if title in ("a later epoch", "no epoch"):
                    continue  # Kafka appends the first to the log, and answers the second with -1
                codes = await self.commit(version, producer, "g", named)
                self.note(f"TxnOffsetCommit {version} of {title}", codes)
            codes = await self.commit(version, self.producer(), "", named)
            self.note(f"TxnOffsetCommit {version} of no group", codes)
            codes = await self.commit(version, self.producer(), "g", named)
            self.note(f"TxnOffsetCommit {version}", codes)
        for version in (3, 4):
            for member in ((1, "m", None), (-1, "m", None), (0, "", None), (-1, "", "i")):
                codes = await self.commit(version, self.producer(), "g", named, *member)
                self.note(f"TxnOffsetCommit {version} of {member}", codes)
        long = await self.commit(4, self.producer(), "g", named, metadata="m" * 5_000)
        self.note("TxnOffsetCommit with long metadata", long)
        await self.fetch_offsets("before the end")

    async def commit(
        self,
        version: int,
        producer: dict[str, Any],
        group: str,
        partitions: Iterable[tuple[str, int]],
        generation: int = -1,
        member_id: str = "",
        instance: str | None = None,
        metadata: str = "m",
    ) -> list[tuple[str, int, int]]:
        topics: dict[str, list[dict[str, Any]]] = {}
        for name, number in partitions:
            row = {"partition_index": number, "committed_offset": 5}
            topics.setdefault(name, []).append({**row, "committed_metadata": metadata})
        values = {
            **producer,
            "group_id": group,
            "generation_id": generation,
            "member_id": member_id,
            "group_instance_id": instance,
            "topics": [{"name": name, "partitions": rows} for name, rows in topics.items()],
        }
        answer = await self.until_ready(TXN_OFFSET_COMMIT, version, **values)
        rows = [(topic.name, row) for topic in answer.topics for row in topic.partitions]
        return sorted((name, row.partition_index, int(row.error_code)) for name, row in rows)

    async def fetch_offsets(self, when: str) -> None:
        for stable in (False, True):
            asked = [{"group_id": "g", "topics": [{"name": "t", "partition_indexes": [0, 1]}]}]
            answer = await self.send(OFFSET_FETCH, 9, groups=asked, require_stable=stable)
            (group,) = answer.groups
            rows = [
                (int(row.error_code), row.committed_offset, row.metadata)
                for row in group.topics[0].partitions
            ]
            self.note(f"OffsetFetch {when}, stable: {stable}", int(group.error_code), rows)

    # ---- ends

    async def end(self, version: int, *, commit: bool, **changes: Any) -> int:
        answer = await self.until_ready(
            END_TXN, version, **self.producer(**changes), committed=commit
        )
        return int(answer.error_code)

    async def ends(self) -> None:
        for version in range(5):
            for title, producer in self.wrong_producers():
                answer = await self.send(END_TXN, version, **producer, committed=True)
                self.note(f"EndTxn {version} of {title}", int(answer.error_code))
        self.note("EndTxn", await self.end(4, commit=True))
        for commit in (True, False):
            self.note(f"EndTxn {commit} after a commit", await self.end(4, commit=commit))
        await self.until_ready(
            ADD_PARTITIONS_TO_TXN,
            3,
            **{
                f"v3_and_below_{name}": value
                for name, value in self.producer(topics=[{"name": "t", "partitions": [1]}]).items()
            },
        )
        self.note("EndTxn of an abort", await self.end(4, commit=False))
        for commit in (True, False):
            self.note(f"EndTxn {commit} after an abort", await self.end(4, commit=commit))
        await self.until_committed()
        await self.fetch_offsets("after the end")
        await self.init("fresh")
        for commit in (True, False):
            code = await self.end(4, commit=commit, transactional_id="fresh")
            self.note(f"EndTxn {commit} without a transaction", code)

    async def until_committed(self) -> None:
        """Wait until the offsets of the committed transaction are stable: their marker may come last."""
        asked = [{"group_id": "g", "topics": [{"name": "t", "partition_indexes": [0]}]}]
        for _ in range(TRIES):
            answer = await self.send(OFFSET_FETCH, 9, groups=asked, require_stable=True)
            if not answer.groups[0].topics[0].partitions[0].error_code:
                return
            await asyncio.sleep(WAIT_SECONDS)

    # ---- administration

    async def describe(self, when: str) -> None:
        names = ["tx", "unknown", "", "tx"]
        answer = await self.send(DESCRIBE_TRANSACTIONS, 0, transactional_ids=names)
        for row in answer.transaction_states:
            self.note(
                f"DescribeTransactions {row.transactional_id!r} {when}",
                int(row.error_code),
                row.transaction_state,
                row.transaction_timeout_ms,
                row.transaction_start_time_ms > 0,
                row.producer_id == self.producer_id,
                row.producer_epoch == self.epoch,
                sorted((topic.topic, sorted(topic.partitions)) for topic in row.topics),
            )

    async def list_transactions(self, when: str) -> None:
        filters = (
            {},
            {"state_filters": ["Ongoing"]},
            {"state_filters": ["ongoing", "Odd", "CompleteCommit", "Dead", ""]},
            {"producer_id_filters": [self.producer_id]},
            {"producer_id_filters": [-1]},
            {"state_filters": ["Ongoing"], "producer_id_filters": [-1]},
        )
        for version in (0, 1):
            durations = ({},) if version == 0 else ({}, {"duration_filter": 10_000_000})
            for given in (*filters, *durations[1:]):
                answer = await self.send(LIST_TRANSACTIONS, version, **given)
                shown = str(given).replace(str(self.producer_id), "ID")
                self.note(
                    f"ListTransactions {version} {shown} {when}",
                    int(answer.error_code),
                    sorted(answer.unknown_state_filters),
                    sorted(
                        (row.transactional_id[:10], row.transaction_state)
                        for row in answer.transaction_states
                    ),
                )


def codes_of(answer: Any) -> set[int]:
    """Return every error code of a response that a coordinator may have set."""
    codes = {int(getattr(answer, "error_code", 0))}
    codes |= {int(row.error_code) for row in getattr(answer, "coordinators", ())}
    for topic in getattr(answer, "results_by_topic_v3_and_below", ()):
        codes |= {int(row.partition_error_code) for row in topic.results_by_partition}
    for topic in getattr(answer, "topics", ()):
        codes |= {int(row.error_code) for row in getattr(topic, "partitions", ())}
    return codes


def rows_of(answer: Any, field: str = "results_by_topic_v3_and_below") -> list[Any]:
    return sorted(
        (topic.name, row.partition_index, int(row.partition_error_code))
        for topic in getattr(answer, field)
        for row in topic.results_by_partition
    )


def answers_of_kafka() -> list[list[Any]]:
    """Return the answers of Apache Kafka 3.9.0, which were recorded."""
    return [json.loads(line) for line in RECORDED.read_text().splitlines()]


async def answers_of(send: Send) -> list[list[Any]]:
    """Send all requests to a broker without topics; return the answers as they are in JSON."""
    scenes = Scenes(send)
    topic = {"name": "t", "num_partitions": 2, "replication_factor": 1}
    await send(CREATE_TOPICS, 5, topics=[topic], timeout_ms=30_000)
    for _ in range(TRIES):  # the group coordinator creates its topic too
        found = await send(FIND_COORDINATOR, 4, key_type=0, coordinator_keys=["g"])
        if not found.coordinators[0].error_code:
            break
        await asyncio.sleep(WAIT_SECONDS)
    await scenes.find()
    await scenes.initialize()
    await scenes.describe("without a transaction")
    await scenes.add_partitions()
    await scenes.write()
    await scenes.describe("in a transaction")
    await scenes.list_transactions("in a transaction")
    await scenes.offsets()
    await scenes.ends()
    await scenes.describe("after its end")
    await scenes.list_transactions("after its end")
    answers: list[list[Any]] = json.loads(json.dumps(scenes.answers))
    return answers
