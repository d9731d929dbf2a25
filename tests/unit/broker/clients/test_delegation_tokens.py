"""Delegation tokens that expire."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from minikafka.base.config import BrokerConfig
from minikafka.base.errors import ErrorCode, KafkaError
from minikafka.broker.clients.delegation_tokens import DelegationTokens, known_tokens
from minikafka.security.tokens import DelegationToken, KnownTokens
from minikafka.simulation.clocks import LoopClock
from minikafka.simulation.loop import run_seeded
from minikafka.simulation.ports import SeededRng


class Store:
    """A TokenStore without ZooKeeper."""

    listener: KnownTokens

    async def start(self, listener: Any) -> None:
        self.listener = listener

    async def create(self, token: DelegationToken) -> None:
        self.listener.update(token.id, token)

    async def remove(self, id: str) -> None:
        self.listener.update(id, None)


class Controller:
    is_active = True

    def check_may_act(self) -> None:
        if not self.is_active:
            raise KafkaError(ErrorCode.NOT_CONTROLLER)


@pytest.mark.key("delegation.token.expiry.check.interval.ms")
def test_expired_tokens_are_removed_at_the_interval_by_the_broker_that_may_act():
    async def scenario() -> None:
        config = BrokerConfig.from_mapping(
            {
                "broker.id": 1,
                "delegation.token.secret.key": "secret",
                "delegation.token.expiry.time.ms": 1_500,
                "delegation.token.expiry.check.interval.ms": 1_000,
            }
        )
        store: Any = Store()
        controller: Any = Controller()
        clock = LoopClock()
        known = known_tokens(config, clock)
        tokens = DelegationTokens(config, known, store, controller, clock, SeededRng())
        await tokens.start()
        running = asyncio.get_running_loop().create_task(tokens.run())
        await tokens.create("User:alice", "User:alice", (), -1)
        controller.is_active = False
        await asyncio.sleep(2.5)
        assert len(list(store.listener)) == 1
        controller.is_active = True
        await asyncio.sleep(0.4)
        assert len(list(store.listener)) == 1
        await asyncio.sleep(0.2)
        assert list(store.listener) == []
        running.cancel()

    run_seeded(1, scenario())
