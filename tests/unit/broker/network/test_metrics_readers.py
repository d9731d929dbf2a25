"""Who may read the metrics once security is on, and what those learn who may not."""

from __future__ import annotations

import logging
from base64 import b64encode
from types import SimpleNamespace
from typing import Any

import pytest

from minikafka.base.config import BrokerConfig
from minikafka.base.metrics import Metrics
from minikafka.broker.clients.access import Access
from minikafka.broker.clients.authentication import ServedMechanism
from minikafka.broker.network.admission import AuthenticationLog
from minikafka.broker.network.metrics_readers import MetricsReaders
from minikafka.broker.network.newcomer import Admission
from minikafka.security import scram
from minikafka.security.acls import (
    CLUSTER_NAME,
    AclEntry,
    AclOperation,
    AclPermission,
    AclResourceType,
    PatternType,
    ResourcePattern,
)
from minikafka.security.authorizer import Authorizer
from minikafka.security.credentials import KnownCredentials
from minikafka.security.sasl import BearerToken, Lookups, RefusedToken
from minikafka.simulation.clocks import LoopClock
from minikafka.simulation.loop import run_seeded
from minikafka.simulation.ports import InlineExecutor

DELAY_MS = 70
PEER = "10.0.0.7:4711"


def basic(user: str, password: str) -> str:
    return f"Basic {b64encode(f'{user}:{password}'.encode()).decode()}"


def verify(token: str) -> BearerToken:
    if token != "good":
        raise RefusedToken
    return BearerToken("tokenuser", 0)


class World:
    """The readers of a broker with users of PLAIN, SCRAM and OAUTHBEARER, of whom `may_describe` have the right."""

    def __init__(self, *may_describe: str) -> None:
        self.clock = LoopClock()
        self.metrics = Metrics()
        self.credentials = KnownCredentials(b"secret")
        for user, iterations in (("sam", 4096), ("sue", 8192), ("weak", 1000)):
            mechanism = scram.MECHANISMS[iterations == 8192]
            credential = scram.new_credential(mechanism, f"{user}-pw", iterations, b"salt")
            text = scram.encode_credential(credential)
            self.credentials.load(user, {mechanism.name: text})
        ports: Any = SimpleNamespace(clock=self.clock, executor=InlineExecutor())
        config = BrokerConfig.from_mapping(
            {"broker.id": 1, "connection.failed.authentication.delay.ms": DELAY_MS}
        )
        lookups = Lookups(bytes, {"paul": "paul-pw:"}, bearer_token=verify)
        admissions = [
            self.admission("PLAIN", lookups),
            self.admission("OAUTHBEARER", lookups),
            Admission(None, {}, str, 0, 0),
        ]
        self.readers = MetricsReaders(
            admissions,
            self.credentials,
            Access(self.authorizer(may_describe), self.metrics),
            AuthenticationLog(self.clock, self.metrics),
            ports,
            config,
        )

    @staticmethod
    def admission(mechanism: str, lookups: Lookups) -> Admission:
        return Admission(None, {mechanism: ServedMechanism(mechanism, lookups, 0)}, str, 0, 0)

    @staticmethod
    def authorizer(may_describe: tuple[str, ...]) -> Authorizer | None:
        if not may_describe:
            return None
        found = Authorizer()
        found.update(
            ResourcePattern(AclResourceType.CLUSTER, CLUSTER_NAME, PatternType.LITERAL),
            frozenset(
                AclEntry(f"User:{name}", "*", AclOperation.DESCRIBE, AclPermission.ALLOW)
                for name in may_describe
            ),
        )
        return found

    def ask(self, *headers: str) -> list[tuple[int, int]]:
        """Return the status and the time (ms) of the answer to each header, one after the other."""

        async def ask_all() -> list[tuple[int, int]]:
            found = []
            for header in headers:
                start = self.clock.now()
                status = await self.readers.refusal(header, PEER)
                found.append((status, self.clock.now() - start))
            return found

        return run_seeded(1, ask_all())

    def total(self, name: str) -> float:
        return self.metrics.totals()[f"{name}-total"]


GOOD = (
    basic("paul", "paul-pw:"),
    basic("sam", "sam-pw"),
    basic("sue", "sue-pw"),
    "Bearer good",
    "bearer  good",
)
BAD = (
    "",
    "Basic",
    "Basic !",
    "Basic " + b64encode(b"\xff:").decode(),
    "Negotiate YII=",
    "Bearer bad",
    "Bearer",
    basic("paul", "paul-pw"),
    basic("paul", ""),
    basic("sam", "sue-pw"),
    basic("weak", "weak-pw"),
    basic("nobody", "sam-pw"),
    basic("nobody", ""),
    basic("", ""),
    basic("tokenuser", "good"),
    basic("paul\0paul", "paul-pw:"),
)


def test_users_of_each_mechanism_read_the_metrics_at_once() -> None:
    world = World()
    assert world.ask(*GOOD) == [(0, 0)] * len(GOOD)
    assert world.total("successful-authentication") == len(GOOD)


def test_every_wrong_credential_gets_the_same_answer_after_the_same_time() -> None:
    world = World()
    assert world.ask(*BAD) == [(401, DELAY_MS)] * len(BAD)
    assert world.total("failed-authentication") == len(BAD)
    assert world.total("successful-authentication") == 0


def test_wrong_password_costs_the_same_for_users_and_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    costs: list[str] = []
    salted = scram.salted_password

    def counted(
        mechanism: scram.ScramMechanism, password: str, salt: bytes, iterations: int
    ) -> bytes:
        costs.append(mechanism.name)
        return salted(mechanism, password, salt, iterations)

    world = World()
    monkeypatch.setattr(scram, "salted_password", counted)
    world.ask(basic("sam", "x"), basic("nobody", "x"), basic("paul", "x"))
    assert costs == ["SCRAM-SHA-256", "SCRAM-SHA-512"] * 3


def test_failures_of_an_address_are_logged_once_in_a_second(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    World().ask(*[basic("sam", "wrong-pw")] * 16)
    lines = [record.getMessage() for record in caplog.records]
    assert (
        lines
        == [f"failed authentication with {PEER} on CONTROLLER: no valid credential for /metrics"]
        * 2
    )


def test_user_needs_the_right_to_describe_the_cluster_where_acls_decide(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "kafka.authorizer.logger")
    world = World("sam")
    assert world.ask(basic("sam", "sam-pw"), basic("paul", "paul-pw:")) == [(0, 0), (403, 0)]
    [denied] = [record.getMessage() for record in caplog.records]
    assert denied.startswith(
        "Principal = User:paul is Denied Operation = Describe from host = 10.0.0.7 on resource = "
        "Cluster:LITERAL:kafka-cluster for request = /metrics"
    )
