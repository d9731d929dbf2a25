"""The files of a secure cluster, in the subdirectory `security` of its data directory.

```
ca.key, ca.pem   the authority                          NAME.properties   how the user NAME connects, with its password
broker.pem       key and certificate of all brokers     zookeeper.cfg, zookeeper.jaas   who may use ZooKeeper
```
Invariant: only the owner may read the directory and its files. What exists is kept, but the certificate of the brokers
is replaced before it expires.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from minikafka.base.config.client import ClientConfig, client_config
from minikafka.base.config.security import JAAS
from minikafka.base.errors import ConfigError
from minikafka.base.ports import Clock, Rng
from minikafka.base.properties import decode_properties, encode_property
from minikafka.security.jaas import DIGEST_MODULE, SCRAM_MODULE, parse_for
from minikafka.security.sasl_client import Login, login_of
from minikafka.tools.cluster.directory import ClusterDirectory, ClusterError
from minikafka.tools.cluster.durable_files import write_private

LISTENER: Final = "SASL_SSL"
"""The only listener of a secure cluster, for clients and brokers, and its protocol."""
MECHANISM: Final = "SCRAM-SHA-512"
BROKER: Final = "broker"
ADMIN: Final = "admin"
FIRST_USER: Final = "alice"
_HOSTS: Final = ("127.0.0.1", "::1", "localhost")
_RENEWED: Final = timedelta(days=30)
"""A start replaces the certificate of the brokers if it expires within this time."""
_PASSWORD_BYTES: Final = 16
_CORRECTION: Final = "correct it, or restore it from a copy"


class SecurityFiles:
    """The files of one cluster. Methods raise ClusterError if a file is missing or damaged, and OSError."""

    def __init__(self, directory: ClusterDirectory) -> None:
        self._path = directory.security
        self.authority = self._path / "ca.pem"
        self.zookeeper = self._path / "zookeeper.cfg"
        self._authority_key = self._path / "ca.key"
        self._broker = self._path / "broker.pem"
        self._jaas = self._path / "zookeeper.jaas"

    def properties(self, user: str) -> Path:
        """Return the path of the file with which commands connect as this user."""
        return self._path / f"{user}.properties"

    @property
    def exist(self) -> bool:
        """True if the files were made; the file of the brokers' user is the last one."""
        return self.properties(BROKER).exists()

    def login(self, user: str) -> Login:
        """Return how a user logs in."""
        known = sorted(file.stem for file in self._path.glob("*.properties"))
        if user not in known:
            raise ClusterError(
                f"there is no {user}.properties in {self._path}: the users there are {', '.join(known) or 'none'}. "
                f"Write this file with the password of {user}, as {FIRST_USER}.properties has it"
            )
        file = self.properties(user)
        config = self._config(file)
        with _errors_name(file, _CORRECTION):
            if config.sasl_jaas_config is None:
                raise ConfigError(f"{JAAS} is not set")
            return login_of(MECHANISM, parse_for(MECHANISM, config.sasl_jaas_config))

    def _config(self, file: Path) -> ClientConfig:
        with _errors_name(file, _CORRECTION):
            return client_config(decode_properties(file.read_bytes()))

    def check(self) -> None:
        """Raise ClusterError if a file that exists cannot be read, or if the files of an existing cluster are gone."""
        if not self.exist:
            raise ClusterError(
                f"{self.properties(BROKER)} is missing: restore {self._path} from a copy"
            )
        self.login(BROKER)
        self._expiry(self.authority)

    def prepare(self, clock: Clock, rng: Rng) -> None:
        """Make the files that are missing, and replace a certificate that expires soon."""
        now = datetime.fromtimestamp(clock.wall_ms() / 1000, UTC)
        self._path.mkdir(mode=0o700, exist_ok=True)
        self._path.chmod(0o700)
        if not self.exist:
            for user in (FIRST_USER, ADMIN, BROKER):
                self._write_user(user, rng.bytes(_PASSWORD_BYTES).hex())
        self._follow_move()
        self._write_zookeeper(self.login(BROKER))
        expiry = self._expiry(self._broker) if self._broker.exists() else now
        if expiry - now < _RENEWED:
            self._renew(now, expiry)

    def broker_keys(self) -> dict[str, object]:
        """Return the keys of all brokers. Before the files are made, the passwords are empty."""
        password = self.login(BROKER).password if self.exist else ""
        scram = f"listener.name.{LISTENER.lower()}.{MECHANISM.lower()}.sasl.jaas.config"
        return {
            "security.inter.broker.protocol": LISTENER,
            "sasl.enabled.mechanisms": MECHANISM,
            "sasl.mechanism.inter.broker.protocol": MECHANISM,
            scram: _module(SCRAM_MODULE, BROKER, password),
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self._broker),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.authority),
            "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
            "super.users": f"User:{ADMIN};User:{BROKER}",
            "minikafka.zookeeper.jaas.config": _module(DIGEST_MODULE, BROKER, password),
            "zookeeper.set.acl": True,
        }

    def _follow_move(self) -> None:
        """Write the users' files again if the data directory was moved, and with it the authority that they name."""
        for file in self._path.glob("*.properties"):
            truststore = self._config(file).ssl_truststore_location
            if truststore is not None and not Path(truststore).exists():
                self._write_user(file.stem, self.login(file.stem).password)

    def _write_user(self, user: str, password: str) -> None:
        entries = client_properties(self.authority, user, password)
        lines = [encode_property(name, value) for name, value in entries.items()]
        write_private(self.properties(user), "\n".join(lines) + "\n")

    def _write_zookeeper(self, broker: Login) -> None:
        user = f'{DIGEST_MODULE} required user_{broker.user}="{broker.password}";'
        keys = {
            "java.security.auth.login.config": str(self._jaas),
            "enforce.auth.enabled": "true",
            "enforce.auth.schemes": "sasl",
        }
        write_private(self._jaas, f"Server {{ {user} }};\n")
        lines = [encode_property(name, value) for name, value in keys.items()]
        write_private(self.zookeeper, "\n".join(lines) + "\n")

    def _renew(self, now: datetime, expiry: datetime) -> None:
        """Write a new certificate for the brokers, and an authority if there is none.

        `expiry`: of the former certificate. If the key of the authority is kept elsewhere, the former one stays until
        it expires.
        """
        from minikafka.tools.cluster.secure.authority import Authority

        if not any(file.exists() for file in (self._authority_key, self.authority, self._broker)):
            made = Authority.new(f"authority of {self._path.parent.name}", now)
            write_private(self._authority_key, made.key_pem)
            write_private(self.authority, made.pem)
        elif not self._authority_key.exists() and now < expiry:
            return
        with _errors_name(self._authority_key, self._advice):
            key = self._authority_key.read_bytes()
            authority = Authority.load(key, self.authority.read_bytes())
            if authority.expiry <= now:
                raise ValueError(f"its certificate expired on {authority.expiry.date()}")
        if expiry < authority.expiry:
            write_private(self._broker, authority.issue(BROKER, _HOSTS, now))

    @property
    def _advice(self) -> str:
        files = ", ".join(map(str, (self._authority_key, self.authority, self._broker)))
        return (
            f"restore it from a copy, or stop the cluster and remove {files}: the next start makes an authority, "
            f"whose ca.pem each client then needs"
        )

    def _expiry(self, file: Path) -> datetime:
        from minikafka.tools.cluster.secure.authority import expiry

        with _errors_name(file, self._advice):
            return expiry(file.read_bytes())


def client_properties(authority: Path, user: str, password: str) -> dict[str, str]:
    """Return the keys with which Kafka's Java clients and tools, and minikafka's commands, connect as this user."""
    return {
        "security.protocol": LISTENER,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(authority),
        "sasl.mechanism": MECHANISM,
        "sasl.jaas.config": _module(SCRAM_MODULE, user, password),
    }


def _module(module: str, user: str, password: str) -> str:
    return f'{module} required username="{user}" password="{password}";'


@contextmanager
def _errors_name(file: Path, advice: str) -> Iterator[None]:
    """Turn an error about the content of a file into a ClusterError that names the file and the advice."""
    try:
        yield
    except (ConfigError, ValueError, OSError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ClusterError(f"{file} cannot be used: {reason}; {advice}") from error
