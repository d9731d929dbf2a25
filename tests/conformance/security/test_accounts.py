"""Users and delegation tokens of whole brokers in memory, in both modes."""

from __future__ import annotations

from typing import Any

import pytest

from minikafka.broker.network.listener import KafkaListener
from minikafka.security import scram
from minikafka.security.tokens import DelegationToken
from minikafka.simulation.cluster import MemoryCluster
from minikafka.zookeeper.nodes import layout, tokens

pytestmark = pytest.mark.usefixtures("each_mode")
SHA_512 = scram.BY_NAME["SCRAM-SHA-512"]
CREDENTIAL = scram.new_credential(SHA_512, "secret", 4096, b"salt")


async def test_broker_knows_users_and_tokens_before_it_listens(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found: list[Any] = []
    listen = KafkaListener.start

    async def watched(self: KafkaListener, *arguments: Any) -> Any:
        broker = cluster.brokers[0]
        login = broker.security.accounts.lookups.tokens.login(SHA_512.name, "t-1")
        found.append((broker.security.accounts.credentials.find(SHA_512.name, "alice"), login.user))
        return await listen(self, *arguments)

    keys = {"delegation_token_secret_key": "secret"}
    async with MemoryCluster(ids=range(1), **keys) as cluster:
        config = layout.encode_config({SHA_512.name: scram.encode_credential(CREDENTIAL)})
        now = cluster.brokers[0].clock.wall_ms()
        token = DelegationToken("t-1", "User:bob", "User:bob", (), now, now + 10**8, now + 10**8)
        cluster.ensemble.put("/config/users/alice", config)
        cluster.ensemble.put(f"{tokens.TOKENS}/t-1", tokens.encode(token))
        await cluster.stop(0)
        monkeypatch.setattr(KafkaListener, "start", watched)
        await cluster.start(0)

    assert found == [(CREDENTIAL, "bob")]
