"""The controller's way to the brokers: one ordered queue per broker, one request in flight (R15).

Invariant: a broker receives the requests of one controller in the order of `send`, each at least
once, and none after `remove` or `stop`; `on_response` is called in that order, once per request.
A request that got no answer is sent again until the broker is removed: only the disappearance of
its registration says that a broker is gone. Stale epochs are the broker's to refuse and the
caller's to read in the answer (R5, R6); the queue goes on.
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
from minikafka.ledger.record import NOTHING, RETRY
from minikafka.ledger.requests import name_of
from minikafka.rpc.messages import SharedRows, decode_response, encode

logger = logging.getLogger(__name__)

CALL_TIMEOUT_MS: Final = 30_000
"""Kafka's `controller.socket.timeout.ms`."""
RETRY_MS: Final = 100
RETRY_SPREAD_MS: Final = 10
"""Channels to brokers that died together do not all wake in the same turn of the loop."""

OnResponse: TypeAlias = Callable[[BrokerId, ControllerRequest, ControllerResponse], None]


class Channels:
    """The channels of one active controller; empty, and ready for the next term, after `stop`."""

    def __init__(
        self,
        control_plane: ControlPlane,
        clock: Clock,
        tasks: Tasks,
        rng: Rng,
        ledger: Ledger = NOTHING,
        listener: str = "CONTROLLER",
    ) -> None:
        self._control_plane = control_plane
        self._listener = listener
        self._ledger = ledger
        self._clock = clock
        self._tasks = tasks
        self._rng = rng
        self._channels: dict[BrokerId, _Channel] = {}
        self._shared = SharedRows()

    def add(self, broker: Broker) -> None:
        """Open the channel; one to an older incarnation or address of it is dropped (R19)."""
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
        )
        self._channels[broker.id] = channel
        self._tasks.spawn(channel.run(), f"channel-to-{broker.id}")

    def remove(self, broker_id: BrokerId) -> None:
        """Drop what is queued for the broker and give up on the request in flight."""
        channel = self._channels.pop(broker_id, None)
        if channel is not None:
            channel.stop()

    def send(
        self, broker_id: BrokerId, request: ControllerRequest, on_response: OnResponse
    ) -> None:
        """Queue a request; one for a broker without a channel is dropped: it is not registered."""
        channel = self._channels.get(broker_id)
        if channel is None:
            logger.warning("%s to offline broker %d dropped", type(request).__name__, broker_id)
            return
        channel.send(request, on_response)

    def waiting(self, broker_id: BrokerId) -> int:
        """Requests that wait for this broker's answer, the one in flight included; 0 without a channel."""
        channel = self._channels.get(broker_id)
        return len(channel.queue) if channel is not None else 0

    def backlog(self) -> dict[BrokerId, int]:
        """`waiting` of every broker with a channel (C39)."""
        return {id_: len(channel.queue) for id_, channel in self._channels.items()}

    def stop(self) -> None:
        """Resign: drop everything at once, without another byte to any broker."""
        for broker_id in list(self._channels):
            self.remove(broker_id)
        self._shared = SharedRows()


class _Channel:
    """One broker's queue and the task that works it off."""

    def __init__(
        self,
        broker: Broker,
        listener: str,
        control_plane: ControlPlane,
        clock: Clock,
        rng: Rng,
        ledger: Ledger,
        shared: SharedRows,
    ) -> None:
        self.broker = broker
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
        self.queue.clear()
        if self._task is not None:
            self._task.cancel()

    async def run(self) -> None:
        """Until stopped. The task is remembered, because stopping must not wait for an answer."""
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
        """Send until there is an answer."""
        method, body = encode(request, self._shared)
        attempt = 0
        while True:
            attempt += 1
            try:
                return await self._call(method, body)
            except OSError as error:
                if attempt == 1:
                    logger.warning("%s to broker %d: %s", method, self.broker.id, error)
                if attempt & (attempt - 1) == 0:
                    self._note_retry(request, attempt, error)
            await self._clock.sleep(RETRY_MS + self._rng.uniform(0, RETRY_SPREAD_MS))

    def _note_retry(self, request: ControllerRequest, attempt: int, error: OSError) -> None:
        """At attempts 1, 2, 4, 8, …: a broker may be away for long."""
        fields = {"to": self.broker.id, "request": name_of(request), "attempt": attempt}
        fields["error"] = f"{type(error).__name__} {error}"
        self._ledger.record(RETRY, request.cause, fields)

    async def _call(self, method: str, body: dict[str, object]) -> ControllerResponse:
        """One attempt. A refusal is an answer, unless a stranger gives it on the broker's port."""
        broker = self.broker
        endpoint = broker.endpoint(self._listener)
        if endpoint is None:
            raise ConnectionError(f"it registered no listener {self._listener}")
        try:
            answer = await self._control_plane.call(
                endpoint.host, endpoint.port, method, body, timeout_ms=CALL_TIMEOUT_MS
            )
            return decode_response(answer)
        except KafkaError as error:
            if error.code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
                raise ConnectionError(f"not let in: {error}") from error
            if error.code is ErrorCode.NETWORK_EXCEPTION:
                raise ConnectionError(f"not carried out: {error}") from error
            logger.error("%s to broker %d was refused: %s", method, broker.id, error)
            return ControllerResponse(int(error.code))
