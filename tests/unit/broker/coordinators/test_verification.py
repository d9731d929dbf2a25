"""The questions of leaders to coordinators: who is asked, and what an answer that does not come means."""

from __future__ import annotations

from collections.abc import Callable, Collection, Coroutine, Mapping
from contextlib import AbstractContextManager
from types import SimpleNamespace
from typing import Any

from support.brokers.endpoints import endpoints

from minikafka.base.errors import ErrorCode
from minikafka.base.model import Broker, ClusterMetadata, PartitionState, TopicPartition
from minikafka.base.names import TRANSACTION_TOPIC
from minikafka.broker.coordinators.verification import (
    CALL_TIMEOUT_MS,
    TransactionVerifier,
)
from minikafka.broker.metadata import MetadataCache
from minikafka.broker.rpc.coordinator_calls import (
    VerifyRow,
    decode_errors,
    decode_verifications,
    encode_errors,
    encode_verifications,
)
from minikafka.deciders.transactions.commands import AddPartitionsResponse
from minikafka.deciders.transactions.events import VerifyRequest
from minikafka.runtime.tasks import TaskRegistry
from minikafka.simulation.clocks import LoopClock
from minikafka.simulation.loop import run_seeded

A, B = (TopicPartition("t", number) for number in range(2))
HOME = TopicPartition(TRANSACTION_TOPIC, 0)
ABORTABLE = int(ErrorCode.TRANSACTION_ABORTABLE)


class Scene:
    """Broker 0 asks. Every coordinator knows only partition A as part of a transaction."""

    def __init__(self) -> None:
        self.metadata = MetadataCache(LoopClock())
        self.is_silent = False
        self.current = SimpleNamespace(transaction_partition_verification_enable=True)
        self.calls: list[tuple[int, tuple[VerifyRow, ...]]] = []
        self.own: list[VerifyRequest] = []
        self.answers: list[Mapping[TopicPartition, int]] = []
        self.verifier = TransactionVerifier(
            0,
            self.metadata,
            self,  # type: ignore[arg-type]
            TaskRegistry(),
            self,  # type: ignore[arg-type]
            self,  # type: ignore[arg-type]
        )

    def coordinate(self, leader: int) -> None:
        """Let this broker coordinate every transactional id."""
        state = PartitionState(HOME, leader, 5, (leader,), 1, 1, (leader,))
        brokers = tuple(Broker(number, endpoints()) for number in range(2))
        self.metadata.update(ClusterMetadata(0, (state,), brokers, ()))

    def handle(self, request: VerifyRequest) -> None:
        """Answer as this broker's own coordinator."""
        self.own.append(request._replace(caller=None))
        respond: Any = request.caller
        respond(AddPartitionsResponse({tp: ABORTABLE * (tp != A) for tp in request.partitions}))

    async def call(self, broker_id: int, method: str, body: Any, timeout_ms: int) -> dict[str, Any]:
        rows = decode_verifications(body)
        self.calls.append((broker_id, rows))
        if self.is_silent:
            await LoopClock().sleep(timeout_ms)
            raise TimeoutError
        return encode_errors([[ABORTABLE * (tp != A) for tp in row.partitions] for row in rows])

    def ask(self, *partitions: TopicPartition, name: str = "x") -> None:
        self.verifier.verify(VerifyRow(name, 7, 0, partitions), self.answers.append)


def run(scenario: Callable[[Scene], Coroutine[Any, Any, None]]) -> None:
    async def scene() -> None:
        await scenario(Scene())

    run_seeded(1, scene())


def test_questions_of_one_turn_go_to_the_coordinator_in_one_call() -> None:
    async def scenario(scene: Scene) -> None:
        scene.coordinate(1)
        scene.ask(A, B)
        scene.ask(B, name="y")
        await LoopClock().sleep(10)
        assert scene.calls == [(1, (VerifyRow("x", 7, 0, (A, B)), VerifyRow("y", 7, 0, (B,))))]
        assert scene.answers == [{A: 0, B: ABORTABLE}, {B: ABORTABLE}]

    run(scenario)


def test_own_coordinator_is_asked_without_a_call() -> None:
    async def scenario(scene: Scene) -> None:
        scene.coordinate(0)
        scene.ask(A)
        assert scene.own == [VerifyRequest("x", 7, 0, (A,), None)]
        assert scene.answers == [{A: 0}]
        assert scene.calls == []

    run(scenario)


def test_no_known_coordinator_is_an_error_at_once() -> None:
    async def scenario(scene: Scene) -> None:
        error = ErrorCode.COORDINATOR_NOT_AVAILABLE
        scene.ask(A)
        for leader in (-1, 9):
            scene.coordinate(leader)
            scene.ask(A)
        assert scene.answers == [{A: error}] * 3

    run(scenario)


def test_coordinator_that_does_not_answer_is_no_verification() -> None:
    async def scenario(scene: Scene) -> None:
        scene.coordinate(1)
        scene.is_silent = True
        scene.ask(A, B)
        await LoopClock().sleep(CALL_TIMEOUT_MS + 10)
        error = ErrorCode.NETWORK_EXCEPTION
        assert scene.answers == [{A: error, B: error}]

    run(scenario)


def test_question_about_one_partition_is_answered_with_its_error() -> None:
    async def scenario(scene: Scene) -> None:
        scene.coordinate(0)
        errors: list[int] = []
        scene.verifier.verify_one(A, "x", 7, 0, errors.append)
        scene.verifier.verify_one(B, "x", 7, 0, errors.append)
        scene.current.transaction_partition_verification_enable = False
        scene.verifier.verify_one(B, "x", 7, 0, errors.append)
        assert errors == [0, ABORTABLE, 0]

    run(scenario)


def test_coordinator_answers_the_questions_of_other_brokers_in_their_order() -> None:
    async def scenario(scene: Scene) -> None:
        rows = [VerifyRow("x", 7, 0, (B, A)), VerifyRow("y", 8, 1, ())]
        answer = await scene.verifier.serve(encode_verifications(rows))
        assert decode_errors(answer, [2, 0]) == [[ABORTABLE, 0], []]

    run(scenario)


class ReadTopics:
    """The source of a mode that passes on changes late: it notes which topics must be read."""

    def __init__(self) -> None:
        self.topics: list[str] = []

    def asked(self, topics: Collection[str] | None, *, is_missing: bool) -> None:
        self.topics += topics or ()

    def followed(self, topics: Collection[str]) -> AbstractContextManager[None]:
        raise AssertionError(topics)


def test_metadata_are_read_when_a_coordinator_does_not_answer() -> None:
    async def scenario(scene: Scene) -> None:
        scene.metadata.source = source = ReadTopics()
        scene.ask(A)
        assert source.topics == [TRANSACTION_TOPIC], "no coordinator is known"
        scene.coordinate(1)
        scene.ask(A)
        await LoopClock().sleep(10)
        assert source.topics == [TRANSACTION_TOPIC], "the coordinator has answered"
        scene.is_silent = True
        scene.ask(A)
        await LoopClock().sleep(2 * CALL_TIMEOUT_MS)
        assert source.topics == [TRANSACTION_TOPIC] * 2

    run(scenario)
