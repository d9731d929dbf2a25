"""Requests about delegation tokens."""

from __future__ import annotations

import inspect
from types import SimpleNamespace
from typing import Any

import pytest
from support.brokers.cold import Cold, context, decoded
from support.kafka.entities import entity

from minikafka.base.config import BrokerConfig
from minikafka.base.errors import ErrorCode
from minikafka.broker.apis.tokens import HANDLERS
from minikafka.kafka.wire.versions import (
    CREATE_DELEGATION_TOKEN,
    DESCRIBE_DELEGATION_TOKEN,
    EXPIRE_DELEGATION_TOKEN,
    RENEW_DELEGATION_TOKEN,
)

SECURED = {
    "listeners": "PLAIN://localhost:9092,SASL://localhost:9093,CERT://localhost:9094",
    "listener.security.protocol.map": "PLAIN:PLAINTEXT,SASL:SASL_SSL,CERT:SSL,CONTROLLER:PLAINTEXT",
    "inter.broker.listener.name": "PLAIN",
}
SECRET = {"delegation.token.secret.key": "secret"}
DAY_MS = 24 * 3_600_000


class Client:
    """One client of a broker."""

    def __init__(
        self, cold: Cold, principal: str, listener: str = "SASL", is_by_token: bool = False
    ) -> None:
        self.cold = cold
        self.principal, self.listener, self.is_by_token = principal, listener, is_by_token

    async def ask(self, api: int, version: int, **fields: Any) -> Any:
        asked = context(version)
        asked.connection.principal = self.principal
        asked.connection.listener = self.listener
        authentication: Any = SimpleNamespace(is_by_token=self.is_by_token)
        asked.connection.authentication = authentication
        answer: Any = HANDLERS[api](self.cold.services, entity(api, version, **fields), asked)
        return decoded(api, version, await answer if inspect.isawaitable(answer) else answer)

    async def create(
        self, *renewers: str, version: int = 3, life_ms: int = -1, **owner: Any
    ) -> Any:
        named = [{"principal_type": "User", "principal_name": name} for name in renewers]
        if version == 3:
            owner = {"owner_principal_type": None, "owner_principal_name": None, **owner}
        return await self.ask(
            CREATE_DELEGATION_TOKEN, version, renewers=named, max_lifetime_ms=life_ms, **owner
        )

    async def renew(self, hmac: bytes, period_ms: int = -1, version: int = 2) -> Any:
        return await self.ask(RENEW_DELEGATION_TOKEN, version, hmac=hmac, renew_period_ms=period_ms)

    async def end(self, hmac: bytes, period_ms: int = -1, version: int = 2) -> Any:
        return await self.ask(
            EXPIRE_DELEGATION_TOKEN, version, hmac=hmac, expiry_time_period_ms=period_ms
        )

    async def describe(self, *owners: str, version: int = 3) -> Any:
        named = [{"principal_type": "User", "principal_name": name} for name in owners]
        return await self.ask(DESCRIBE_DELEGATION_TOKEN, version, owners=named or None)


async def started(config: dict[str, Any]) -> Cold:
    """Return a broker with several listeners, on which it need not listen, that follows the tokens in ZooKeeper."""
    cold = Cold(config=config)
    cold.services.config = BrokerConfig.from_mapping({"broker.id": 1, **config, **SECURED})
    await cold.session.attach()
    await cold.tokens.start()
    return cold


@pytest.fixture
async def cold() -> Cold:
    return await started(SECRET)


@pytest.mark.parametrize("version", range(4))
async def test_created_token_is_described_to_its_owner(cold: Cold, version: int) -> None:
    alice = Client(cold, "User:alice")

    made = await alice.create("carol", version=version)
    (shown,) = (await alice.describe(version=version)).tokens

    assert made.error_code == ErrorCode.NONE
    assert (made.principal_type, made.principal_name) == ("User", "alice")
    assert (made.token_id, len(made.token_id), len(made.hmac)) == (shown.token_id, 22, 64)
    assert shown.hmac == made.hmac
    assert made.expiry_timestamp_ms - made.issue_timestamp_ms == DAY_MS
    assert made.max_timestamp_ms - made.issue_timestamp_ms == 7 * DAY_MS
    assert [renewer.principal_name for renewer in shown.renewers] == ["carol"]


async def test_token_may_belong_to_another_owner(cold: Cold) -> None:
    admin = Client(cold, "User:admin")

    made = await admin.create(owner_principal_type="User", owner_principal_name="bob")

    assert (made.principal_name, made.token_requester_principal_name) == ("bob", "admin")


async def test_renewed_token_ends_later_and_shortened_token_earlier(cold: Cold) -> None:
    alice, carol = Client(cold, "User:alice"), Client(cold, "User:carol")
    made = await alice.create("carol", life_ms=10_000)

    shorter = await alice.end(made.hmac, 1_000)
    longer = await carol.renew(made.hmac, 5_000)

    assert shorter.error_code == longer.error_code == ErrorCode.NONE
    assert 0 <= longer.expiry_timestamp_ms - shorter.expiry_timestamp_ms - 4_000 < 1_000
    (shown,) = (await alice.describe()).tokens
    assert shown.expiry_timestamp == longer.expiry_timestamp_ms


async def test_removed_token_is_gone(cold: Cold) -> None:
    alice = Client(cold, "User:alice")
    made = await alice.create()

    assert (await alice.end(made.hmac)).error_code == ErrorCode.NONE

    assert (await alice.describe()).tokens == ()
    assert (await alice.renew(made.hmac)).error_code == ErrorCode.DELEGATION_TOKEN_NOT_FOUND


async def test_stranger_neither_renews_nor_ends_a_token(cold: Cold) -> None:
    made = await Client(cold, "User:alice").create("carol")
    mallory = Client(cold, "User:mallory")

    for got in (await mallory.renew(made.hmac), await mallory.end(made.hmac)):
        assert got.error_code == ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
        assert got.expiry_timestamp_ms == -1


async def test_tokens_of_named_owners_are_described(cold: Cold) -> None:
    alice = Client(cold, "User:alice")
    await alice.create()
    await Client(cold, "User:bob").create("alice")

    assert [row.principal_name for row in (await alice.describe("bob")).tokens] == ["bob"]
    assert len((await alice.describe()).tokens) == 2
    assert (await alice.ask(DESCRIBE_DELEGATION_TOKEN, 3, owners=[])).tokens == ()


async def test_renewer_that_is_no_user_is_refused(cold: Cold) -> None:
    alice = Client(cold, "User:alice")
    group = [{"principal_type": "Group", "principal_name": "g"}]

    got = await alice.ask(CREATE_DELEGATION_TOKEN, 2, renewers=group, max_lifetime_ms=-1)

    assert got.error_code == ErrorCode.INVALID_PRINCIPAL_TYPE
    assert (await alice.describe()).tokens == ()


async def every_request(client: Client) -> set[int]:
    made = await client.create()
    assert (made.hmac, made.token_id, made.expiry_timestamp_ms) == (b"", "", -1)
    asked = (made, await client.renew(b"x"), await client.end(b"x"), await client.describe())
    return {answer.error_code for answer in asked}


@pytest.mark.parametrize(
    ("principal", "listener", "is_by_token"),
    [
        ("User:ANONYMOUS", "PLAIN", False),
        ("User:ANONYMOUS", "CERT", False),
        ("User:alice", "SASL", True),
    ],
)
async def test_client_that_has_not_authenticated_by_itself_is_refused(
    cold: Cold, principal: str, listener: str, is_by_token: bool
) -> None:
    client = Client(cold, principal, listener, is_by_token)

    assert await every_request(client) == {ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED}


async def test_client_with_a_certificate_may_create_a_token(cold: Cold) -> None:
    assert (await Client(cold, "User:CN=a", "CERT").create()).error_code == ErrorCode.NONE


@pytest.mark.key("delegation.token.secret.key")
async def test_broker_without_a_secret_refuses_every_request() -> None:
    client = Client(await started({}), "User:alice")

    assert await every_request(client) == {ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED}


@pytest.mark.key("delegation.token.master.key")
async def test_former_name_of_the_secret_makes_the_same_tokens() -> None:
    hmacs = []
    for name in ("delegation.token.secret.key", "delegation.token.master.key"):
        cold = Cold(config={name: "secret"})
        hmacs.append(cold.tokens.require().hmac_of("t"))

    assert hmacs[0] == hmacs[1]


@pytest.mark.key("delegation.token.max.lifetime.ms", "delegation.token.expiry.time.ms")
async def test_lifetimes_of_tokens_come_from_the_configuration() -> None:
    keys = {"delegation.token.max.lifetime.ms": 5_000, "delegation.token.expiry.time.ms": 2_000}
    cold = await started({**SECRET, **keys})

    made = await Client(cold, "User:alice").create()

    assert made.expiry_timestamp_ms - made.issue_timestamp_ms == 2_000
    assert made.max_timestamp_ms - made.issue_timestamp_ms == 5_000


async def test_hmac_of_a_token_is_neither_stored_nor_logged(
    cold: Cold, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("DEBUG"):
        made = await Client(cold, "User:alice").create()

    assert made.token_id in caplog.text
    stored = b"".join(data for data, _ in cold.znodes().values())
    assert made.hmac.hex() not in caplog.text
    assert made.hmac not in stored
