"""Listeners with TLS and SASL for a benchmark, and the client's side of their connections.

The keys of the configuration are the same for minikafka and Apache Kafka. A client does the TLS handshake and the
login with blocking calls, before any measurement.
"""

from __future__ import annotations

import asyncio
import secrets
import socket
import ssl
from pathlib import Path
from typing import Any, Final, NamedTuple

import trustme
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.serialization import pkcs12

from benchmarks.closed_loop import Connection, Load, LoadError
from benchmarks.kafka import CLIENT_ID, LENGTH
from minikafka.kafka.wire import codec
from minikafka.kafka.wire.versions import SASL_AUTHENTICATE, SASL_HANDSHAKE

PLAINTEXT: Final = "PLAINTEXT"
PROTOCOLS: Final = (PLAINTEXT, "SSL", "SASL_SSL")
USER: Final = "load"
RECEIVE_BYTES: Final = 256 << 10


class Material(NamedTuple):
    """A certificate of the brokers in files that minikafka and Java read, and the password of the only user."""

    keystore: Path
    truststore: Path
    password: str

    def keys(self, protocol: str) -> dict[str, object]:
        """Return the keys of a broker whose connections, also those between brokers, use this protocol."""
        module = "org.apache.kafka.common.security.plain.PlainLoginModule required"
        user = f'username="{USER}" password="{self.password}" user_{USER}="{self.password}";'
        return {
            "security.inter.broker.protocol": protocol,
            "sasl.enabled.mechanisms": "PLAIN",
            "sasl.mechanism.inter.broker.protocol": "PLAIN",
            "listener.name.sasl_plaintext.plain.sasl.jaas.config": f"{module} {user}",
            "listener.name.sasl_ssl.plain.sasl.jaas.config": f"{module} {user}",
            "ssl.keystore.type": "PKCS12",
            "ssl.keystore.location": str(self.keystore),
            "ssl.keystore.password": self.password,
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.truststore),
        }

    def access(self, protocol: str) -> Access:
        """Return how a client connects to a listener with this protocol."""
        context = ssl.create_default_context(cafile=str(self.truststore))
        return Access(context, self.password if protocol.startswith("SASL") else None)


def make_material(directory: Path) -> Material:
    """Make a certificate authority, and a certificate of the brokers on this machine."""
    authority = trustme.CA()
    leaf = authority.issue_cert("localhost", "127.0.0.1")
    made = Material(directory / "broker.p12", directory / "ca.pem", secrets.token_hex(16))
    key = serialization.load_pem_private_key(leaf.private_key_pem.bytes(), None)
    [own] = x509.load_pem_x509_certificates(leaf.cert_chain_pems[0].bytes())
    encryption = serialization.BestAvailableEncryption(made.password.encode())
    data = pkcs12.serialize_key_and_certificates(b"own", key, own, None, encryption)  # type: ignore[arg-type]
    made.keystore.write_bytes(data)
    made.truststore.write_bytes(authority.cert_pem.bytes())
    return made


class TlsSocket:
    """A blocking socket under TLS. It reads `RECEIVE_BYTES` at once; an `ssl.SSLSocket` reads each TLS record twice."""

    def __init__(self, plain: socket.socket, context: ssl.SSLContext, host: str) -> None:
        self.plain = plain
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self.incoming, self.outgoing, server_hostname=host)
        self._buffer = memoryview(bytearray(RECEIVE_BYTES))
        while True:
            try:
                self.tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                self._flush()
                self._receive()
        self._flush()

    def sendall(self, data: bytes) -> None:
        """Encrypt and send the data."""
        write_all(self.tls, data)
        self._flush()

    def recv_into(self, view: memoryview) -> int:
        """Return the number of decrypted bytes in `view`; 0 at the end."""
        while True:
            try:
                return self.tls.read(len(view), view)  # type: ignore[return-value]
            except ssl.SSLWantReadError:
                self._receive()

    def recv(self, count: int) -> bytes:
        """Return at most `count` decrypted bytes; b"" at the end."""
        data = bytearray(count)
        return bytes(data[: self.recv_into(memoryview(data))])

    def close(self) -> None:
        """Close the socket."""
        self.plain.close()

    def _receive(self) -> None:
        count = self.plain.recv_into(self._buffer)
        if not count:
            raise LoadError("the server closed the connection")
        self.incoming.write(self._buffer[:count])

    def _flush(self) -> None:
        self.plain.sendall(self.outgoing.read())


class Access(NamedTuple):
    """How a client connects: the context of its TLS, and its password if the listener demands SASL."""

    context: ssl.SSLContext
    password: str | None

    def secure(self, plain: socket.socket) -> TlsSocket:
        """Do the TLS handshake and the login on a new connection. Raises LoadError, OSError."""
        secured = TlsSocket(plain, self.context, plain.getpeername()[0])
        if self.password is not None:
            log_in(secured, USER, self.password)
        return secured


def log_in(connection: Any, user: str, password: str) -> None:
    """Authenticate by PLAIN. Raises LoadError if the broker refuses it."""
    ask(connection, SASL_HANDSHAKE, 1, mechanism="PLAIN")
    answer = ask(connection, SASL_AUTHENTICATE, 1, auth_bytes=f"\0{user}\0{password}".encode())
    if answer.error_code:
        raise LoadError(f"the login was refused: {answer.error_message}")


def ask(connection: Any, api: int, version: int, **values: Any) -> Any:
    """Send a request on a blocking socket, and return the decoded response."""
    body = codec.request(api, version, **values)
    connection.sendall(codec.encode_request(api, version, 1, CLIENT_ID, body))
    [size] = LENGTH.unpack(exactly(connection, LENGTH.size))
    return codec.decode_response(api, version, exactly(connection, size))


def exactly(connection: Any, count: int) -> bytes:
    """Receive `count` bytes. Raises LoadError if the connection ends before."""
    data = b""
    while len(data) < count:
        more = connection.recv(count - len(data))
        if not more:
            raise LoadError("the server closed the connection")
        data += more
    return data


def write_all(tls: ssl.SSLObject, data: bytes) -> None:
    """Encrypt all of the data: OpenSSL takes one TLS record in each call."""
    taken = tls.write(data)
    while taken < len(data):
        taken += tls.write(memoryview(data)[taken:])


class SecuredConnection(Connection):
    """One connection under load, with TLS."""

    def __init__(self, load: Load, finished: asyncio.Future[None], access: Access) -> None:
        super().__init__(load, finished)
        self._access = access
        self._encrypted = memoryview(bytearray(RECEIVE_BYTES))

    async def open(self) -> None:
        loop = asyncio.get_running_loop()
        plain = await loop.run_in_executor(None, self._connect)
        await loop.create_connection(lambda: self, sock=plain)

    def _connect(self) -> socket.socket:
        plain = socket.create_connection((self.load.host, self.load.port), timeout=30)
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._secured = self._access.secure(plain)
        plain.setblocking(False)
        return plain

    def get_buffer(self, hint: int) -> memoryview:
        return self._encrypted

    def buffer_updated(self, count: int) -> None:
        secured = self._secured
        secured.incoming.write(self._encrypted[:count])
        try:
            while True:
                free = self.view[self.filled :]
                super().buffer_updated(secured.tls.read(len(free), free))  # type: ignore[arg-type]
        except ssl.SSLWantReadError:
            return

    def write(self, slices: list[bytes]) -> None:
        for data in slices:
            write_all(self._secured.tls, data)
        super().write([self._secured.outgoing.read()])
