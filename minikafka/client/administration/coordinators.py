"""Administrative requests to the coordinators of groups or transactional ids: one request per coordinator.

Invariant: a request is sent again for the keys whose coordinator has moved, is not available, or is still loading.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple

from minikafka.base.arguments import several
from minikafka.base.errors import ErrorCode, KafkaError
from minikafka.base.meanings import AnsweredError
from minikafka.base.model import Node
from minikafka.client.administration.results import Outcome
from minikafka.client.metadata import Metadata, error_code
from minikafka.client.network import Address, Network, request
from minikafka.client.retries import Retries
from minikafka.kafka.wire import versions

MOVED: Final = (
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
)
"""Errors after which the coordinator must be found again."""


class CoordinatorKind(NamedTuple):
    """What a coordinator coordinates. `number`: Kafka's number in FindCoordinator. `noun`: the word in errors."""

    number: int
    noun: str


GROUP: Final = CoordinatorKind(0, "group")
TRANSACTION: Final = CoordinatorKind(1, "transactional id")


class Coordinators:
    """The coordinators of one kind."""

    def __init__(
        self,
        kind: CoordinatorKind,
        network: Network,
        metadata: Metadata,
        retries: Retries,
        request_timeout_ms: int,
    ) -> None:
        self._kind = kind
        self._network = network
        self._metadata = metadata
        self._retries = retries
        self._timeout_ms = request_timeout_ms

    async def call(
        self,
        keys: Iterable[str],
        api: int,
        body_of: Callable[[Sequence[str]], Any],
        read: Callable[[Node, Any], dict[str, Outcome]],
    ) -> dict[str, Outcome]:
        """Send one request to each coordinator of these keys; return the outcomes by key. Raises KafkaError."""
        wanted = list(dict.fromkeys(several(str, keys)))
        found: dict[str, Outcome] = {}

        async def attempt() -> None:
            left = [key for key in wanted if key not in found]
            by_node: defaultdict[Node, list[str]] = defaultdict(list)
            for key, node in zip(left, await self._find(left), strict=True):
                by_node[node].append(key)
            answers = await asyncio.gather(
                *(self._ask(node, api, body_of(some)) for node, some in by_node.items())
            )
            for node, answer in zip(by_node, answers, strict=True):
                outcomes = read(node, answer)
                found.update({n: o for n, o in outcomes.items() if o.code not in MOVED})
            if missing := [key for key in wanted if key not in found]:
                detail = f"{self._kind.noun} {missing[0]}"
                raise AnsweredError(ErrorCode.NOT_COORDINATOR, detail)

        await self._retries(attempt)
        return {key: found[key] for key in wanted}

    async def call_every_broker(self, api: int, body: Any) -> list[tuple[Node, Any]]:
        """Send a request to every broker; return each broker with its response. Raises KafkaError."""

        async def attempt() -> list[tuple[Node, Any]]:
            cluster, _ = await self._metadata.describe(())
            nodes = list(cluster.brokers.values())
            answers = await asyncio.gather(*(self._ask(node, api, body) for node in nodes))
            for answer in answers:
                code = error_code(answer.error_code)
                if code is not ErrorCode.NONE:
                    raise AnsweredError(code, f"list of {self._kind.noun}s")
            return list(zip(nodes, answers, strict=True))

        return await self._retries(attempt)

    async def call_those_that_answer(self, api: int, body: Any) -> list[tuple[Node, Any]]:
        """Send a request to every broker once; return the brokers that answer without an error, with their responses.

        Raises KafkaError if no broker sends its metadata, and the broker's error if all refuse the request.
        """
        cluster, _ = await self._retries(lambda: self._metadata.describe(()))
        nodes = list(cluster.brokers.values())
        answers = await asyncio.gather(
            *(self._ask(node, api, body) for node in nodes), return_exceptions=True
        )
        for answer in answers:
            if isinstance(answer, BaseException) and not isinstance(answer, OSError):
                raise answer
        found = [
            (node, answer, error_code(answer.error_code))
            for node, answer in zip(nodes, answers, strict=True)
            if not isinstance(answer, BaseException)
        ]
        codes = [code for _, _, code in found]
        if codes and ErrorCode.NONE not in codes:
            raise AnsweredError(codes[0], f"list of {self._kind.noun}s")
        return [(node, answer) for node, answer, code in found if code is ErrorCode.NONE]

    async def _ask(self, node: Node, api: int, body: Any) -> Any:
        address = Address(node.host, node.port)
        return await self._network.call(address, api, self._timeout_ms, body)

    async def _find(self, keys: Sequence[str]) -> list[Node]:
        """Return the coordinators of these keys, in order. Raises KafkaError if a key has no coordinator."""
        api = versions.FIND_COORDINATOR
        body = request(api, key_type=self._kind.number, coordinator_keys=keys)
        address = await self._metadata.any_address()
        response = await self._network.call(address, api, self._timeout_ms, body)
        found = {
            answer.key: read_coordinator(answer, self._kind) for answer in response.coordinators
        }
        return [found[key] for key in keys]


def read_coordinator(answer: Any, kind: CoordinatorKind = GROUP) -> Node:
    """Return the coordinator in one item of a FindCoordinator response. Raises KafkaError."""
    code = error_code(answer.error_code)
    if code is not ErrorCode.NONE:
        detail = answer.error_message or "no broker is its coordinator at the moment"
        raise KafkaError(code, f"{kind.noun} {answer.key}: {detail}")
    return Node(int(answer.node_id), answer.host, answer.port, None)
