"""Channels from the controller to the brokers: one ordered queue per broker, one request in flight (R15).

Invariant: a broker receives the requests of one controller in the order of the `send` calls, each
request at least once. `on_response` is called once per request, in the same order. After `remove`
or `stop`, no request is sent. A request without a response is repeated until the broker is removed,
because only the end of the broker's registration shows that the broker is gone. If a request has a
stale epoch, the broker responds with an error (R5), and the channel sends the next request.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import Final, TypeAlias

from minikafka.base.errors import ErrorCode, KafkaError
from minikafka.base.model import Broker, BrokerId, ControllerRequest, ControllerResponse
from minikafka.base.ports import Clock, ControlPlane, Ledger, Rng, Tasks
from minikafka.broker.ledger.record import RETRY
from minikafka.broker.ledger.requests import name_of
from minikafka.broker.rpc.broker_calls import call_broker
from minikafka.broker.rpc.envelope import version_for
from minikafka.broker.rpc.messages import SharedRows, decode_response, encode

logger = logging.getLogger(__name__)

RETRY_MS: Final = 100
RETRY_SPREAD_MS: Final = 10
"""Jitter of retries. Without it, the channels to brokers that failed together would all retry at once."""

OnResponse: TypeAlias = Callable[[BrokerId, ControllerRequest, ControllerResponse], None]


class Channels:
    """The channels from this broker to all brokers, while this broker is the active controller.

    After `stop`, `add` opens new channels if this broker is elected again.
    """

    def __init__(
        self,
        control_plane: ControlPlane,
        clock: Clock,
        tasks: Tasks,
        rng: Rng,
        ledger: Ledger,
        listener: str,
        timeout_ms: int,
    ) -> None:
        """`timeout_ms`: the time after which a request without a response is repeated."""
        self._control_plane = control_plane
        self._listener = listener
        self._timeout_ms = timeout_ms
        self._ledger = ledger
        self._clock = clock
        self._tasks = tasks
        self._rng = rng
        self._channels: dict[BrokerId, _Channel] = {}
        self._shared = SharedRows()

    def add(self, broker: Broker) -> None:
        """Open a channel to the broker. Drop any channel to an older registration or address (R19)."""
        known = self._channels.get(broker.id)
        if known is not None:
            if known.broker == broker:
                return
            self.remove(broker.id)
        channel = _Channel(
            broker,
            self._listener,
            self._control_plane,
            self._clock,
            self._rng,
            self._ledger,
            self._shared,
            self._timeout_ms,
        )
        self._channels[broker.id] = channel
        self._tasks.spawn(channel.run(), f"channel-to-{broker.id}")

    def remove(self, broker_id: BrokerId) -> None:
        """Drop the broker's queued requests and give up on the request in flight."""
        channel = self._channels.pop(broker_id, None)
        if channel is not None:
            channel.stop()

    def send(
        self, broker_id: BrokerId, request: ControllerRequest, on_response: OnResponse
    ) -> None:
        """Queue a request. A request to an unregistered broker is dropped, as that broker has no channel."""
        channel = self._channels.get(broker_id)
        if channel is None:
            logger.warning(
                "Dropped %s to unregistered broker %d", type(request).__name__, broker_id
            )
            return
        channel.send(request, on_response)

    def waiting(self, broker_id: BrokerId) -> int:
        """Return the number of requests waiting for this broker's response, including the one in flight."""
        channel = self._channels.get(broker_id)
        return len(channel.queue) if channel is not None else 0

    def backlog(self) -> dict[BrokerId, int]:
        return {id_: len(channel.queue) for id_, channel in self._channels.items()}

    def stop(self) -> None:
        """Drop all channels when the controller resigns, without sending another byte to any broker."""
        for broker_id in list(self._channels):
            self.remove(broker_id)
        self._shared = SharedRows()


class _Channel:
    """One broker's queue and the task that sends its requests."""

    def __init__(
        self,
        broker: Broker,
        listener: str,
        control_plane: ControlPlane,
        clock: Clock,
        rng: Rng,
        ledger: Ledger,
        shared: SharedRows,
        timeout_ms: int,
    ) -> None:
        self.broker = broker
        self._timeout_ms = timeout_ms
        self._listener = listener
        self._shared = shared
        self._ledger = ledger
        self.queue: deque[tuple[ControllerRequest, OnResponse]] = deque()
        self._control_plane = control_plane
        self._clock = clock
        self._rng = rng
        self._stopped = False
        self._filled = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def send(self, request: ControllerRequest, on_response: OnResponse) -> None:
        self.queue.append((request, on_response))
        self._filled.set()

    def stop(self) -> None:
        self._stopped = True
        if self._task is not None:
            self._task.cancel()

    async def run(self) -> None:
        """Send queued requests until `stop` cancels the task that runs this method."""
        self._task = asyncio.current_task()
        while not self._stopped:
            if not self.queue:
                self._filled.clear()
                await self._filled.wait()
                continue
            request, on_response = self.queue[0]
            response = await self._deliver(request)
            self.queue.popleft()
            on_response(self.broker.id, request, response)

    async def _deliver(self, request: ControllerRequest) -> ControllerResponse:
        """Repeat a request until the broker responds; return the response."""
        try:
            version = version_for(self._control_plane.versions, self.broker)
        except KafkaError as error:
            logger.error("%s", error)
            return ControllerResponse(int(error.code))
        method, body = encode(request, self._shared, version)
        attempt = 0
        while True:
            attempt += 1
            try:
                return await self._call(method, body)
            except OSError as error:
                if attempt == 1:
                    logger.warning(
                        "No response to %s from broker %d: %s", method, self.broker.id, error
                    )
                if attempt & (attempt - 1) == 0:
                    self._note_retry(request, attempt, error)
            await self._clock.sleep(RETRY_MS + self._rng.uniform(0, RETRY_SPREAD_MS))

    def _note_retry(self, request: ControllerRequest, attempt: int, error: OSError) -> None:
        """Write a failed attempt to the ledger. Called for attempts 1, 2, 4, 8, … only, to limit the lines."""
        fields = {"to": self.broker.id, "request": name_of(request), "attempt": attempt}
        fields["error"] = f"{type(error).__name__} {error}"
        self._ledger.record(RETRY, request.cause, fields)

    async def _call(self, method: str, body: dict[str, object]) -> ControllerResponse:
        """Send a request once and return the response, which may have an error code.

        Raises OSError if the request must be repeated: there is no response, or the error is
        CLUSTER_AUTHORIZATION_FAILED or NETWORK_EXCEPTION.
        """
        broker = self.broker
        try:
            answer = await call_broker(
                self._control_plane, broker, self._listener, method, body, self._timeout_ms
            )
            return decode_response(answer)
        except KafkaError as error:
            if error.code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
                raise ConnectionError(f"authentication failed: {error}") from error
            if error.code is ErrorCode.NETWORK_EXCEPTION:
                raise ConnectionError(f"request failed: {error}") from error
            logger.error("Broker %d refused %s: %s", broker.id, method, error)
            return ControllerResponse(int(error.code))
