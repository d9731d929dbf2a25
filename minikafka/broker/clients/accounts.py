"""Who may log in to a broker: users with SCRAM credentials, delegation tokens, and the issuers of bearer tokens."""

from __future__ import annotations

from minikafka.base.config import BrokerConfig
from minikafka.broker.clients.bearer_logins import BearerLogins
from minikafka.broker.clients.delegation_tokens import known_tokens
from minikafka.broker.ports import BrokerPorts
from minikafka.security.credentials import KnownCredentials
from minikafka.security.sasl import Lookups


class Accounts:
    """What all listeners of a broker look up. The users of PLAIN are in the configuration of each listener."""

    def __init__(self, config: BrokerConfig, ports: BrokerPorts) -> None:
        self.credentials = KnownCredentials(
            config.minikafka_cluster_secret.encode() or ports.rng.bytes(32)
        )
        self.tokens = known_tokens(config, ports.clock)
        self.bearers = BearerLogins(config, ports)
        self.lookups = Lookups(ports.rng.bytes, scram=self.credentials, tokens=self.tokens)
