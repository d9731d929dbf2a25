"""What a broker encrypts with, and whom it lets in, as its configuration says.

Invariant: `BrokerSecurity` is made before the broker joins the cluster, so that a wrong key, file or password stops the
start before anything is written.
"""

from __future__ import annotations

from itertools import chain

from minikafka.base.config import BrokerConfig
from minikafka.base.encryption import ListenerTls
from minikafka.broker.clients.accounts import Accounts
from minikafka.broker.inter_broker import connector_of
from minikafka.broker.network.admission import admission_of
from minikafka.broker.network.newcomer import Admission
from minikafka.broker.ports import BrokerPorts
from minikafka.broker.rpc.encryption import changeable, control_tls
from minikafka.broker.settings.dynamic_stores import DynamicStores


class BrokerSecurity:
    """The encryption and the authentication of one broker, as server and as client of other brokers."""

    def __init__(self, config: BrokerConfig, ports: BrokerPorts) -> None:
        """Raises ConfigError, which names the key."""
        self.accounts = Accounts(config, ports)
        self.admissions = _admissions(config, ports, self.accounts)
        """What each listener that is not PLAINTEXT demands of its clients, by its name."""
        self.connector = connector_of(config, ports.transport, ports.rng, ports.clock)
        """How the broker connects to the inter-broker listeners of others."""
        self.control = control_tls(config, ports.transport)
        self._control = [] if self.control is None else changeable(self.control)
        self.stores = DynamicStores(config, ports.rng.bytes)
        for name, admission in self.admissions.items():
            if admission.tls is not None:
                self.stores.in_use[name.lower()] = [admission.tls]
        if self.connector.tls is not None:
            between = self.stores.in_use[config.endpoints.inter_broker.lower()]
            between += [self.connector.tls, *self._control]

    @property
    def encryption(self) -> list[ListenerTls]:
        """What encrypts the connections of clients, those between brokers, and the control plane."""
        of_listeners = chain.from_iterable(self.stores.in_use.values())
        return list(dict.fromkeys([*of_listeners, *self._control]))


def _admissions(
    config: BrokerConfig, ports: BrokerPorts, accounts: Accounts
) -> dict[str, Admission]:
    found = {}
    for endpoint in config.endpoints.kafka:
        admission = admission_of(endpoint, config, ports.transport, accounts)
        if admission is not None:
            found[endpoint.name] = admission
    return found
