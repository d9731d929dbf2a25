"""Channels to brokers: requests are sent in order, one at a time, with retries. A stopped channel sends nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any, NamedTuple

import pytest
from support.brokers.endpoints import endpoints
from support.ledger.recording_ledger import RecordingLedger

from minikafka.base.endpoints import Endpoint
from minikafka.base.errors import ErrorCode, KafkaError
from minikafka.base.model import (
    Broker,
    BrokerId,
    ControllerRequest,
    ControllerResponse,
    StopReplicaRequest,
)
from minikafka.base.ports import Listener
from minikafka.base.protocol_versions import UNVERSIONED, VERSION, VERSIONS
from minikafka.broker.ledger.record import NOTHING
from minikafka.broker.rpc import channels
from minikafka.broker.rpc.channels import Channels
from minikafka.broker.rpc.messages import encode_response
from minikafka.runtime.clock import SystemRng
from minikafka.runtime.tasks import TaskRegistry
from minikafka.simulation.clocks import ManualClock

RETRY_MS = channels.RETRY_MS + channels.RETRY_SPREAD_MS
OK = encode_response(ControllerResponse(0))


class Attempt(NamedTuple):
    """A received call, and the future with which the test answers it."""

    port: int
    target_id: int
    epoch: int
    answer: asyncio.Future[dict[str, Any]]
    timeout_ms: int


class ScriptedControlPlane:
    """A control plane that records every call and lets the test answer it."""

    versions = VERSIONS

    def __init__(self) -> None:
        self.attempts: asyncio.Queue[Attempt] = asyncio.Queue()
        self.cancelled = 0
        self.versions_sent: list[str] = []

    async def call(
        self,
        endpoint: Endpoint,
        method: str,
        body: dict[str, Any],
        *,
        target_id: int,
        timeout_ms: int,
        version: str,
    ) -> dict[str, Any]:
        answer: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self.versions_sent.append(version)
        self.attempts.put_nowait(
            Attempt(endpoint.port, target_id, body["controller_epoch"], answer, timeout_ms)
        )
        try:
            return await answer
        except asyncio.CancelledError:
            self.cancelled += 1
            raise

    async def serve(self, handler: Any, host: str, port: int, metrics: Any = None) -> Listener:
        raise NotImplementedError

    async def close(self) -> None: ...


CALL_TIMEOUT_MS = 30_000


class World:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.plane = ScriptedControlPlane()
        self.tasks = TaskRegistry()
        self.channels = Channels(
            self.plane, self.clock, self.tasks, SystemRng(), NOTHING, "CONTROLLER", CALL_TIMEOUT_MS
        )
        self.responses: list[tuple[BrokerId, int, int]] = []

    def send(self, broker_id: int, epoch: int) -> None:
        self.channels.send(broker_id, request(epoch), self.on_response)

    def on_response(
        self, broker_id: BrokerId, sent: ControllerRequest, response: ControllerResponse
    ) -> None:
        self.responses.append((broker_id, sent.controller_epoch, response.error))

    async def attempt(self) -> Attempt:
        async with asyncio.timeout(60):
            return await self.plane.attempts.get()

    async def turn_loop(self) -> None:
        for _ in range(10):
            await asyncio.sleep(0)


def broker(broker_id: int, epoch: int = 1) -> Broker:
    port = 9000 + 10 * broker_id + epoch
    return Broker(broker_id, endpoints("127.0.0.1", 9092, "127.0.0.1", port), epoch)


def control_port(broker: Broker) -> int:
    endpoint = broker.endpoint("CONTROLLER")
    assert endpoint is not None
    return endpoint.port


def request(epoch: int) -> StopReplicaRequest:
    """Return a request that a test can identify by its controller epoch."""
    return StopReplicaRequest(0, epoch, 1, ())


@pytest.fixture
async def world() -> AsyncIterator[World]:
    world = World()
    world.channels.add(broker(1))
    yield world
    world.channels.stop()
    await world.tasks.close()


@pytest.mark.row("R15")
async def test_channel_sends_requests_one_by_one_in_order(world: World) -> None:
    for epoch in (1, 2, 3):
        world.send(1, epoch)
    for epoch in (1, 2, 3):
        attempt = await world.attempt()
        assert (attempt.target_id, attempt.epoch) == (1, epoch)
        await world.turn_loop()
        assert world.plane.attempts.empty()
        attempt.answer.set_result(OK)
    await world.turn_loop()
    assert world.responses == [(1, 1, 0), (1, 2, 0), (1, 3, 0)]


@pytest.mark.row("C39")
async def test_backlog_counts_queued_requests_and_those_in_flight(world: World) -> None:
    world.channels.add(broker(2))
    for epoch in (1, 2):
        world.send(1, epoch)
    attempt = await world.attempt()
    assert world.channels.backlog() == {1: 2, 2: 0}
    attempt.answer.set_result(OK)
    await world.turn_loop()
    assert world.channels.backlog() == {1: 1, 2: 0}


@pytest.mark.row("J6")
async def test_silent_broker_does_not_delay_other_brokers(world: World) -> None:
    world.channels.add(broker(2))
    world.send(1, 1)
    world.send(2, 1)
    silent, quick = sorted([await world.attempt(), await world.attempt()])
    quick.answer.set_result(OK)
    await world.turn_loop()
    assert world.responses == [(2, 1, 0)]
    assert not silent.answer.done()


@pytest.mark.row("R15")
@pytest.mark.parametrize("error", [ConnectionRefusedError("gone"), TimeoutError("slow")])
async def test_channel_retries_a_request_before_it_sends_the_next(
    world: World, error: OSError
) -> None:
    world.send(1, 1)
    world.send(1, 2)
    for _ in range(5):
        attempt = await world.attempt()
        assert attempt.epoch == 1
        attempt.answer.set_exception(error)
        await world.turn_loop()
        assert world.plane.attempts.empty()
        world.clock.advance(RETRY_MS)
    (await world.attempt()).answer.set_result(OK)
    assert (await world.attempt()).epoch == 2
    assert world.responses == [(1, 1, 0)]


async def test_channel_sends_the_next_request_after_a_stale_epoch_response(world: World) -> None:
    world.send(1, 1)
    world.send(1, 2)
    stale = ControllerResponse(ErrorCode.STALE_CONTROLLER_EPOCH)
    (await world.attempt()).answer.set_result(encode_response(stale))
    (await world.attempt()).answer.set_result(OK)
    await world.turn_loop()
    assert world.responses == [(1, 1, ErrorCode.STALE_CONTROLLER_EPOCH), (1, 2, 0)]


async def test_kafka_error_of_a_broker_is_reported_as_the_response_to_the_request(
    world: World,
) -> None:
    world.send(1, 1)
    (await world.attempt()).answer.set_exception(KafkaError(ErrorCode.INVALID_REQUEST, "x"))
    await world.turn_loop()
    assert world.responses == [(1, 1, ErrorCode.INVALID_REQUEST)]


async def test_invalid_response_is_reported_as_an_error(world: World) -> None:
    world.send(1, 1)
    (await world.attempt()).answer.set_result({"error": "none"})
    await world.turn_loop()
    assert world.responses == [(1, 1, ErrorCode.INVALID_REQUEST)]


async def test_response_without_an_error_code_is_reported_as_an_error(world: World) -> None:
    world.send(1, 1)
    (await world.attempt()).answer.set_result({"hello": "world"})
    await world.turn_loop()
    assert world.responses == [(1, 1, ErrorCode.UNKNOWN_SERVER_ERROR)]


async def test_broker_gets_requests_in_the_version_of_its_registration(world: World) -> None:
    world.channels.add(replace(broker(2), versions=VERSIONS))
    for number in (1, 2):
        world.send(number, 1)
        (await world.attempt()).answer.set_result(OK)
    assert world.plane.versions_sent == [UNVERSIONED, VERSION]


async def test_broker_without_a_common_version_gets_no_request(world: World) -> None:
    world.channels.add(replace(broker(2), versions=("0.3",)))
    world.send(2, 1)
    await world.turn_loop()
    assert world.plane.attempts.empty()
    assert world.responses == [(2, 1, ErrorCode.UNSUPPORTED_VERSION)]


@pytest.mark.parametrize(
    "code",
    [ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.NETWORK_EXCEPTION],
    ids=["another program on its port", "a broker without ZooKeeper"],
)
async def test_channel_retries_a_request_that_the_broker_could_not_process(
    world: World, code: ErrorCode
) -> None:
    world.send(1, 1)
    (await world.attempt()).answer.set_exception(KafkaError(code))
    await world.turn_loop()
    assert world.responses == []
    world.clock.advance(RETRY_MS)
    (await world.attempt()).answer.set_result(OK)
    await world.turn_loop()
    assert world.responses == [(1, 1, 0)]


@pytest.mark.row("R15")
async def test_removed_broker_gets_no_further_request(world: World) -> None:
    world.send(1, 1)
    world.send(1, 2)
    await world.attempt()
    world.channels.remove(1)
    await world.turn_loop()
    assert world.plane.cancelled == 1
    assert world.tasks.names() == []
    world.send(1, 3)
    world.clock.advance(10 * RETRY_MS)
    await world.turn_loop()
    assert world.plane.attempts.empty()
    assert world.responses == []


async def test_stopped_channels_send_nothing(world: World) -> None:
    world.channels.add(broker(2))
    world.send(1, 1)
    world.send(2, 1)
    world.send(2, 2)
    in_flight, between_attempts = sorted([await world.attempt(), await world.attempt()])
    between_attempts.answer.set_exception(ConnectionResetError())
    await world.turn_loop()
    # Even a response that has arrived but was not processed changes nothing.
    in_flight.answer.set_result(OK)
    world.channels.stop()
    world.clock.advance(10 * RETRY_MS)
    await world.turn_loop()
    assert world.plane.attempts.empty()
    assert world.responses == []
    assert world.tasks.names() == []


async def test_channel_sends_nothing_if_stopped_before_its_task_has_run(world: World) -> None:
    world.channels.add(broker(2))
    world.send(2, 1)
    world.channels.stop()
    await world.turn_loop()
    assert world.plane.attempts.empty()
    assert world.tasks.names() == []


async def test_channels_stopped_by_a_response_handler_send_no_queued_requests(world: World) -> None:
    world.channels.send(1, request(1), lambda *_: world.channels.stop())
    world.send(1, 2)
    (await world.attempt()).answer.set_result(OK)
    await world.turn_loop()
    assert world.plane.attempts.empty()
    assert world.tasks.names() == []


async def test_channel_keeps_the_request_while_the_broker_has_no_control_listener(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.channels.add(Broker(2, (Endpoint("PLAINTEXT", "127.0.0.1", 9092),)))
    world.send(2, 1)
    await world.turn_loop()
    assert world.plane.attempts.empty()
    assert world.channels.backlog()[2] == 1
    assert "from broker 2: broker 2 has no listener CONTROLLER" in caplog.text


async def test_channels_added_after_a_stop_send_only_new_requests(world: World) -> None:
    world.send(1, 1)
    await world.attempt()
    world.channels.stop()
    world.channels.add(broker(1))
    world.send(1, 2)
    attempt = await world.attempt()
    assert attempt.epoch == 2
    attempt.answer.set_result(OK)
    await world.turn_loop()
    assert world.responses == [(1, 2, 0)]


@pytest.mark.row("R19")
async def test_bounced_broker_gets_a_new_channel_to_its_new_address(world: World) -> None:
    world.send(1, 1)
    assert (await world.attempt()).port == control_port(broker(1))
    world.channels.add(broker(1))
    await world.turn_loop()
    assert world.plane.cancelled == 0
    world.channels.add(broker(1, epoch=2))
    world.send(1, 2)
    attempt = await world.attempt()
    assert (attempt.port, attempt.epoch) == (control_port(broker(1, epoch=2)), 2)
    assert world.plane.cancelled == 1


async def test_channel_writes_only_retries_1_2_4_and_8_to_the_ledger(world: World) -> None:
    ledger = RecordingLedger()
    world.channels = Channels(
        world.plane, world.clock, world.tasks, SystemRng(), ledger, "CONTROLLER", CALL_TIMEOUT_MS
    )
    world.channels.add(broker(1))
    world.send(1, 1)
    for _ in range(9):
        attempt = await world.attempt()
        attempt.answer.set_exception(ConnectionRefusedError("connection refused"))
        await world.turn_loop()
        world.clock.advance(RETRY_MS)
    assert [(kind, fields["attempt"]) for kind, _, fields in ledger.lines] == [
        ("retry", attempt) for attempt in (1, 2, 4, 8)
    ]
    assert dict(ledger.lines[0][2]) == {
        "to": 1,
        "request": "StopReplica",
        "attempt": 1,
        "error": "ConnectionRefusedError connection refused",
    }
