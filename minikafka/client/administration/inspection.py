"""The request with which brokers of minikafka tell about themselves, the cluster and their ledgers: InspectBroker."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from json import dumps
from typing import Any, Final, NamedTuple

from minikafka.base.errors import ErrorCode, KafkaError
from minikafka.client.metadata import error_code
from minikafka.client.network import Address, Network, request
from minikafka.kafka.wire import versions

DENIED: Final = (
    "no ACL lets the client describe the cluster, which this command needs: "
    "`minikafka acls add --allow-principal User:NAME --operation Describe --cluster` grants it"
)
UNKNOWN: Final = "it does not know the request InspectBroker: it is minikafka 0.1.0 or Apache Kafka"

ANSWER_MS: Final = 10_000
"""Time for a broker to connect and to name its APIs."""


class ServedApi(NamedTuple):
    """An API that a broker serves, with its lowest and highest version. `is_of_kafka`: False for minikafka's own."""

    key: int
    name: str
    lowest: int
    highest: int
    is_of_kafka: bool


class Inspection:
    """Questions to single brokers, available as `client.inspection`."""

    def __init__(self, network: Network) -> None:
        self._network = network
        self._checked: set[Address] = set()
        """The brokers that know the request."""

    async def ask(
        self,
        address: Address,
        question: str,
        argument: Mapping[str, Any],
        *,
        broker: int,
        timeout_ms: int,
    ) -> list[bytes]:
        """Return the rows of the answer, each a JSON object, from all pages.

        `broker`: the id of the broker that is expected at the address. `timeout_ms`: for each page, and for the
        connection. Raises KafkaError: NETWORK_EXCEPTION, REQUEST_TIMED_OUT, UNSUPPORTED_VERSION for a broker that does
        not know the request, or the broker's own error; and NotAdmitted.
        """
        rows: list[bytes] = []
        position = ""
        while True:
            found, position = await self.page(
                address, question, argument, position, broker=broker, timeout_ms=timeout_ms
            )
            rows += found
            if not position:
                return rows

    async def page(
        self,
        address: Address,
        question: str,
        argument: Mapping[str, Any],
        position: str,
        *,
        broker: int,
        timeout_ms: int,
    ) -> tuple[list[bytes], str]:
        """Return the rows of one page, and the position of the next one, "" after the last. Raises as `ask` does."""
        body = request(
            versions.INSPECT_BROKER,
            question=question,
            argument=dumps(argument),
            position=position,
        )
        try:
            await self._check_known(address, timeout_ms)
            answer = await self._network.call(address, versions.INSPECT_BROKER, timeout_ms, body)
        except TimeoutError as error:
            text = f"no answer within {timeout_ms / 1000:g} s"
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, text) from error
        except OSError as error:
            text = error.strerror or str(error)
            raise KafkaError(ErrorCode.NETWORK_EXCEPTION, text) from error
        return [*_rows(answer, broker)], answer.next_position

    async def api_versions(
        self, address: Address, timeout_ms: int = ANSWER_MS
    ) -> dict[int, ServedApi]:
        """Return the APIs that a broker serves, by their keys. Raises OSError."""
        body = request(versions.API_VERSIONS)
        answer = await self._network.call(address, versions.API_VERSIONS, timeout_ms, body)
        found = [
            ServedApi(
                int(row.api_key),
                versions.NAMES.get(int(row.api_key), "UNKNOWN"),
                row.min_version,
                row.max_version,
                row.api_key not in versions.OWN,
            )
            for row in answer.api_keys
        ]
        return {api.key: api for api in found}

    async def _check_known(self, address: Address, timeout_ms: int) -> None:
        """Raise KafkaError UNSUPPORTED_VERSION for a broker that would close the connection."""
        if address in self._checked:
            return
        if versions.INSPECT_BROKER not in await self.api_versions(address, timeout_ms):
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, UNKNOWN)
        self._checked.add(address)


def _rows(answer: Any, broker: int) -> Iterator[bytes]:
    """Yield the rows of a page. Raises KafkaError."""
    code = error_code(answer.error_code)
    if code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
        raise KafkaError(code, DENIED)
    if code is not ErrorCode.NONE:
        raise KafkaError(code, answer.error_message or "")
    if answer.broker_id != broker:
        text = f"broker {answer.broker_id} answers there"
        raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, text)
    for row in answer.rows:
        yield bytes(row.json)
