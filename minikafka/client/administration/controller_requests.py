"""Requests that only the controller can answer, sent to the broker that metadata names as the controller.

Invariant: an item (a topic, a partition) that a broker rejects with NOT_CONTROLLER is sent again to the next
controller. Items that were answered are not sent again.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, Final, TypeVar

from minikafka.base.errors import ErrorCode, KafkaError
from minikafka.base.meanings import meaning
from minikafka.client.administration.results import Outcome
from minikafka.client.metadata import Metadata, error_code
from minikafka.client.network import Network
from minikafka.client.retries import GRACE_MS, Retries

CONTROLLER: Final = "an answer to an administrator's request"
"""The text for `PendingCall.about`. A client does not know whether the cluster has a controller that answers."""

Item = TypeVar("Item", bound=Hashable)


class ControllerRequests:
    """Requests to the active controller, retried while there is no controller."""

    def __init__(
        self, network: Network, metadata: Metadata, retries: Retries, request_timeout_ms: int
    ) -> None:
        self._network = network
        self._metadata = metadata
        self._retries = retries
        self._request_timeout_ms = request_timeout_ms

    async def send_once(self, api: int, body: Any) -> Any:
        """Send a request without retries; return the response without checking its error codes.

        Raises KafkaError(NOT_CONTROLLER) when there is no controller. Raises OSError.
        """
        address = await self._metadata.controller()
        timeout_ms = self._request_timeout_ms + GRACE_MS
        return await self._network.call(address, api, timeout_ms, body)

    async def send_checked(self, api: int, body: Any) -> Any:
        """Send a request without retries; return the response.

        Raises KafkaError if the response as a whole has an error code. Raises OSError.
        """
        response = await self.send_once(api, body)
        code = error_code(getattr(response, "error_code", 0))
        if code is not ErrorCode.NONE:
            raise KafkaError(code, getattr(response, "error_message", None) or meaning(code))
        return response

    async def send_items(
        self,
        api: int,
        items: Iterable[Item],
        body_of: Callable[[Sequence[Item]], Any],
        read: Callable[[Any], dict[Item, Outcome]],
    ) -> dict[Item, Outcome]:
        """Send a request about these items, with retries; return the controller's outcome for each item.

        `body_of` builds the request for the pending items; `read` returns the outcomes in a response.
        Raises KafkaError only when no item was answered.
        """
        pending = list(dict.fromkeys(items))
        found: dict[Item, Outcome] = {}

        async def attempt() -> None:
            nonlocal pending
            found.update(read(await self.send_checked(api, body_of(pending))))
            pending = [item for item in pending if item in found and is_not_controller(found[item])]
            if pending:
                raise no_controller()

        missing = Outcome(ErrorCode.UNKNOWN_SERVER_ERROR, "missing in the controller's response")
        wanted = list(pending)
        try:
            if wanted:
                await self._retries(attempt, CONTROLLER)
        except KafkaError as error:
            if len(pending) == len(wanted):
                raise
            missing = Outcome(error.code, error.reason)
            found = {i: outcome for i, outcome in found.items() if not is_not_controller(outcome)}
        return {item: found.get(item, missing) for item in wanted}


def is_not_controller(outcome: Outcome) -> bool:
    """True if the broker that answered is not the controller."""
    return outcome.code is ErrorCode.NOT_CONTROLLER


def no_controller() -> KafkaError:
    """Return the retriable error that there is currently no active controller."""
    return KafkaError(
        ErrorCode.NOT_CONTROLLER, "no broker names an active controller at the moment"
    )
