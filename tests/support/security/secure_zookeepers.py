"""Servers of Apache ZooKeeper and of minikafka with TLS, SASL and super users: one authority, one set of users."""

from __future__ import annotations

import os
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import ClassVar, Final, NamedTuple

from support.security.certificates import PASSWORD, Authority, Certificate
from support.zookeeper.bytes import Wire

from minikafka.runtime.clock import SystemClock, SystemRng
from minikafka.tools.cluster.ports import free_ports
from minikafka.zookeeper.processes.apache import JVM_FLAGS, ApacheZooKeeper, find_jars
from minikafka.zookeeper.processes.child import EmbeddedZooKeeper, ServerProcess

HOST: Final = "127.0.0.1"
USERS: Final = {"alice": "alice-secret", "super": "super-secret", "chief": "chief-secret"}
"""Users of SASL. `chief` is a super user."""
SUPER_DIGEST: Final = "super:xQJmxLMiHGwaqBvst5y6rkB6HQs="
"""The super user of the scheme digest, whose password is `admin`."""
SUPER_SUBJECT: Final = "CN=root,OU=Data,O=Example"
DIGEST_MODULE: Final = "org.apache.zookeeper.server.auth.DigestLoginModule"
_NETTY: Final = ("netty-*.jar", "log4j-*.jar", "slf4j-*.jar")
_APACHE_KEYS: Final = """\
authProvider.sasl=org.apache.zookeeper.server.auth.SASLAuthenticationProvider
serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory
fips-mode=false
ssl.clientHostnameVerification=false
"""


class Material:
    """The files of a secure server, in one directory, and the keys that name them."""

    def __init__(self, directory: Path) -> None:
        self.authority = Authority(directory)
        self._server = self.authority.server()
        users = " ".join(f'user_{name}="{password}"' for name, password in USERS.items())
        self.jaas = directory / "jaas.conf"
        self.jaas.write_text(f"Server {{ {DIGEST_MODULE} required {users}; }};\n")

    def keys(self, secure_port: int, *, client_auth: str = "want") -> str:
        """Return lines of zoo.cfg. Certificates are optional by default, so that a test can leave them out."""
        return f"""\
secureClientPort={secure_port}
secureClientPortAddress={HOST}
ssl.keyStore.location={self._server.pkcs12}
ssl.keyStore.password={PASSWORD}
ssl.trustStore.location={self.authority.pkcs12}
ssl.trustStore.password={PASSWORD}
ssl.clientAuth={client_auth}
ssl.enabledProtocols=TLSv1.2,TLSv1.3
DigestAuthenticationProvider.superDigest={SUPER_DIGEST}
X509AuthenticationProvider.superUser={SUPER_SUBJECT}
superUser=chief
"""


class SecureApache(ApacheZooKeeper):
    """A server of Apache ZooKeeper with these keys."""

    material: Material
    secure_port: int
    client_auth = "want"

    def _write_config(self) -> str:
        name = super()._write_config()
        with (self.data_dir / name).open("a") as file:
            file.write(self.material.keys(self.secure_port, client_auth=self.client_auth))
            file.write(_APACHE_KEYS)
        return name

    def command(self) -> list[str]:
        command = super().command()
        place = command.index("-cp")
        jars = Path(find_jars()[0]).parent
        extra = [str(jar) for pattern in _NETTY for jar in sorted(jars.glob(pattern))]
        command[place + 1] = os.pathsep.join((command[place + 1], *extra))
        command.insert(place, f"-Djava.security.auth.login.config={self.material.jaas}")
        command.insert(place, "-Dzookeeper.forceSync=no")
        return command

    def environment(self) -> Mapping[str, str]:
        return {**super().environment(), JVM_FLAGS: ""}


class SecureEmbedded(EmbeddedZooKeeper):
    """A server of minikafka with these keys."""

    expected_exits: ClassVar = EmbeddedZooKeeper.expected_exits
    material: Material
    secure_port: int
    client_auth = "want"

    def command(self) -> list[str]:
        config = self.data_dir / "secure.cfg"
        config.parent.mkdir(parents=True, exist_ok=True)
        config.write_text(
            self.material.keys(self.secure_port, client_auth=self.client_auth)
            + f"java.security.auth.login.config={self.material.jaas}\n"
        )
        return [*super().command(), "--config", str(config)]


class SecurePair(NamedTuple):
    """Both servers, running."""

    apache: SecureApache
    embedded: SecureEmbedded
    material: Material


def secure_server(
    kind: type[SecureApache] | type[SecureEmbedded], directory: Path, material: Material
) -> SecureApache | SecureEmbedded:
    """Return a server that is not started yet."""
    ports = free_ports(2, SystemRng())
    server = kind(directory, ports[0], clock=SystemClock())
    server.material, server.secure_port = material, ports[1]
    return server


@asynccontextmanager
async def running_secure_pair(directory: Path) -> AsyncIterator[SecurePair]:
    """Run both servers below a directory during the `with` body."""
    material = Material(directory / "ca")
    pair: list[ServerProcess] = [
        secure_server(kind, directory / name, material)
        for kind, name in ((SecureApache, "apache"), (SecureEmbedded, "embedded"))
    ]
    try:
        for server in pair:
            server.spawn()
        for server in pair:
            await server.wait_until_serving()
        yield SecurePair(*pair, material)  # type: ignore[arg-type]
    finally:
        for server in pair:
            await server.stop()


class SecureWire(Wire):
    """A connection under TLS, at the level of bytes. Raises OSError if the server refuses the certificate at once."""

    def __init__(
        self, port: int, authority: Authority, certificate: Certificate | None = None
    ) -> None:
        super().__init__(port)
        context = ssl.create_default_context(cadata=authority.pem_text)
        if certificate is not None:
            context.load_cert_chain(certificate.pem)
        self.socket = context.wrap_socket(self.socket, server_hostname=HOST)
