"""A coordinator that records the requests it gets and answers each with a response set by the test."""

from __future__ import annotations

from typing import Any, Protocol

from support.brokers.cold import Cold, context, decoded
from support.kafka.entities import entity

from minikafka.broker.network.listener import HANDLERS
from minikafka.broker.services import LATER


class GroupRecorder:
    """A replacement for `services.groups` and `services.transactions`.

    It records each request without its caller, and responds with `answer`.
    """

    def __init__(self, answer: Any = None, topic: Any = None) -> None:
        self.answer = answer
        self.topic = topic
        self.requests: list[Any] = []

    def handle(self, request: Any) -> None:
        self.requests.append(request._replace(caller=None))
        request.caller(self.answer)

    end = handle


def exchange(cold: Cold, api: int, version: int, outcome: Any, **values: Any) -> tuple[Any, Any]:
    """Send an encoded request to its handler; return (request that the coordinator got, decoded response).

    The coordinator's request is None if the handler answered without the coordinator.
    """
    recorder: Any = GroupRecorder(outcome, cold.groups.topic)
    cold.services.groups = cold.services.transactions = recorder
    answers: list[Any] = []
    asked = context(version)
    asked.answer = answers.append
    asked.client_id = "tester"
    asked.connection.peer = "10.1.2.3:4567"
    returned = HANDLERS[api](cold.services, entity(api, version, **values), asked)
    if returned is not LATER:
        answers.append(returned)
    (answer,) = answers
    response = decoded(api, version, answer)  # a handler in steps calls the coordinator only here
    return recorder.requests[0] if recorder.requests else None, response


class InParts(Protocol):
    """A coordinator that gets a request in parts. `answer` sends the responses that the coordinator has delayed."""

    def answer(self) -> None: ...


def parts_of(
    cold: Cold, api: int, version: int, coordinator: InParts, **values: Any
) -> tuple[int, Any]:
    """Run a handler that passes a request to the coordinator in parts; return (number of yields, response)."""
    groups: Any = coordinator
    cold.services.groups = groups
    asked = context(version)
    answers: list[Any] = []
    asked.answer = answers.append
    steps: Any = HANDLERS[api](cold.services, entity(api, version, **values), asked)
    count = 0
    try:
        while True:
            next(steps)
            count += 1
    except StopIteration as done:
        answer = done.value
    if answer is LATER:
        coordinator.answer()
        (answer,) = answers
    return count, decoded(api, version, answer)
