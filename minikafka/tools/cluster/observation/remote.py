"""A cluster elsewhere, known only from what its brokers answer to clients.

Invariant: a broker that does not answer is not asked again, so that a paused or distant one costs ANSWER_MS once. What
could not be seen is said in sentences (`RemoteCluster.unseen`).
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Collection, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

import minikafka.client as clients
import minikafka.client.login as logins
from minikafka.base.coordination import CONTROLLER
from minikafka.base.errors import ErrorCode, KafkaError
from minikafka.base.model import Node
from minikafka.broker.rpc.messages import STATE
from minikafka.client.network import Address
from minikafka.tools.cluster.observation.sights import (
    RUNS,
    UNREACHABLE,
    UNTOLD,
    BrokerSight,
    ProcessSight,
    Sights,
    ZooKeeperSight,
)
from minikafka.tools.cluster.observation.state import CONNECTED, coordination_of
from minikafka.tools.cluster.observation.views import BrokerView, read_views

ANSWER_MS: Final = 3_000
"""Time for a broker to accept a connection with a login, and to answer a question or send a page of its ledger."""
ALWAYS_UNSEEN: Final = (
    "over the network, the processes and disks of the brokers' machines, and ZooKeeper itself, "
    "are not examined"
)
_AWAY: Final = (
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.BROKER_NOT_AVAILABLE,
)
"""The codes of brokers that cannot be reached. All others come from brokers that serve clients."""


class RemoteCluster:
    """The brokers of a cluster elsewhere. `nodes`: those that a broker lists as alive. `topics`: the known topics."""

    def __init__(self, client: clients.Client, views: Iterable[BrokerView], servers: str) -> None:
        self.servers = servers
        self.nodes: dict[int, Node] = {}
        self.topics: set[str] = set()
        self._ids: set[int] = set()
        for view in views:
            self.nodes |= view.info.brokers
            for topic in view.topics:
                self.topics.add(topic.name)
                for partition in topic.partitions.values():
                    self._ids.update(partition.replicas)
        self._client = client
        self._failures: dict[int, KafkaError] = {}
        self._unanswered: dict[str, None] = {}
        """Sentences about single questions that a broker could not answer."""
        self._sights: Sights | None = None

    async def ask(
        self, question: str, argument: Mapping[str, Any], timeout_ms: int = ANSWER_MS
    ) -> dict[int, list[bytes] | KafkaError]:
        """Ask all brokers at the same time; return the rows of their answers, or their errors, by broker id."""
        ids = sorted(self.nodes)
        found = await asyncio.gather(
            *(self._ask(id_, question, argument, timeout_ms) for id_ in ids)
        )
        return dict(zip(ids, found, strict=True))

    async def _ask(
        self, broker: int, question: str, argument: Mapping[str, Any], timeout_ms: int
    ) -> list[bytes] | KafkaError:
        if (failure := self._failures.get(broker)) is not None:
            return failure
        node = self.nodes[broker]
        address = Address(node.host, node.port)
        try:
            return await self._client.inspection.ask(
                address, question, argument, broker=broker, timeout_ms=timeout_ms
            )
        except KafkaError as error:
            if error.code in (*_AWAY, ErrorCode.UNSUPPORTED_VERSION) or is_denied(error):
                self._failures[broker] = error
            elif error.code not in (ErrorCode.NOT_CONTROLLER, ErrorCode.INVALID_REQUEST):
                text = f"broker {broker} cannot answer the question {question}: {error}"
                self._unanswered[text] = None
            return error

    async def sights(self) -> Sights:
        """Return what the brokers tell of themselves, as the first call found it.

        Raises the KafkaError of a broker if none answers.
        """
        if self._sights is None:
            found = await self.ask(STATE, {})
            answers = {id_: state_of(rows) for id_, rows in found.items() if isinstance(rows, list)}
            if not answers:
                raise _why_none(self._failures)
            self._sights = self._sights_of(answers)
        return self._sights

    def sights_from(self, known: Mapping[int, Mapping[str, Any] | OSError | KafkaError]) -> Sights:
        """Return what the brokers tell of themselves, given their answers to `state`, or the errors of the calls."""
        answers: dict[int, Mapping[str, Any]] = {}
        for id_, one in known.items():
            if isinstance(one, KafkaError):
                self._failures[id_] = one
            elif isinstance(one, OSError):
                text = one.strerror or str(one)
                self._failures[id_] = KafkaError(ErrorCode.NETWORK_EXCEPTION, text)
            else:
                answers[id_] = one
        return self._sights_of(answers)

    def _sights_of(self, answers: Mapping[int, Mapping[str, Any]]) -> Sights:
        rows = [row for answer in answers.values() for row in answer["replicas"]]
        hosts = {replica for row in rows for replica in row["replicas"]}
        ids = sorted(self._ids | self.nodes.keys() | hosts)
        brokers = {id_: self._broker(id_, answers.get(id_)) for id_ in ids}
        mode = next((coordination_of(answer) for answer in answers.values()), CONTROLLER)
        return Sights(_zookeeper(answers), brokers, coordination=mode, is_remote=True)

    def _broker(self, broker: int, answer: Mapping[str, Any] | None) -> BrokerSight:
        node, failure = self.nodes.get(broker), self._failures.get(broker)
        state = RUNS
        if answer is None:
            is_away = failure is None or failure.code in _AWAY
            state = UNREACHABLE if is_away else UNTOLD
        return BrokerSight(
            broker,
            node.port if node else 0,
            0,
            ProcessSight(state),
            answer,
            "" if failure is None else failure.detail,
            host=node.host if node else "",
        )

    def unseen(self, ids: Collection[int]) -> list[str]:
        """Return what could not be seen, as sentences. `ids`: the brokers of the cluster."""
        found = [ALWAYS_UNSEEN, *self._unanswered]
        for broker in sorted(ids):
            if broker not in self.nodes:
                found.append(
                    f"broker {broker} is away: what only it knows, such as its ledger, is not seen"
                )
            elif failure := self._failures.get(broker):
                verb = (
                    "cannot be reached" if failure.code in _AWAY else "does not answer this command"
                )
                found.append(
                    f"broker {broker} {verb} ({failure.detail}): what only it knows, such as its ledger, is not seen"
                )
        return found


def is_denied(error: KafkaError) -> bool:
    """True if the broker refused the question because the client lacks the right."""
    return error.code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def _why_none(failures: Mapping[int, KafkaError]) -> KafkaError:
    """Return the error of a command that no broker answers: a missing right before other reasons."""
    for chosen in (
        [error for error in failures.values() if is_denied(error)],
        [error for error in failures.values() if error.code not in _AWAY],
    ):
        if chosen:
            return KafkaError(chosen[0].code, chosen[0].detail)
    texts = "; ".join(f"broker {id_}: {error.detail}" for id_, error in failures.items())
    return KafkaError(ErrorCode.NETWORK_EXCEPTION, f"no broker answers: {texts}")


def state_of(rows: list[bytes]) -> dict[str, Any]:
    """Return the answer to `state` as the control plane gives it: the broker, with its replicas."""
    summary, *replicas = map(json.loads, rows)
    replicas.sort(key=lambda row: (row["topic"], row["partition"]))
    return {**summary, "replicas": replicas}


def _zookeeper(answers: Mapping[int, Mapping[str, Any]]) -> ZooKeeperSight:
    address = next((str(answer.get("zookeeper", "")) for answer in answers.values()), "")
    connected = any(answer["session_state"] == CONNECTED for answer in answers.values())
    failure = "" if connected else "no broker that answers has a session"
    return ZooKeeperSight(address.partition("/")[0], None, failure)


@asynccontextmanager
async def remote_cluster(
    servers: str, access: logins.Connector | None
) -> AsyncIterator[RemoteCluster]:
    """Yield the cluster of these brokers. Raises KafkaError if none of them answers, ConfigError, and NotAdmitted."""
    async with clients.Client(servers, connector=access, api_timeout_ms=ANSWER_MS) as client:
        views = await read_views(servers.split(","), access, ANSWER_MS)
        if not views:
            text = await _why_silent(client, servers)
            raise KafkaError(ErrorCode.NETWORK_EXCEPTION, text)
        yield RemoteCluster(client, views, servers)


async def _why_silent(client: clients.Client, servers: str) -> str:
    """Return a sentence about brokers that do not answer, with the reason."""
    silence = f"no broker answers at {servers}"
    try:
        await client.admin.describe((), retries=False)
    except (KafkaError, OSError) as error:
        reason = str(error)
        return reason if reason.startswith(silence) else f"{silence}: {reason}"
    return f"{silence}: the answers came too late"
