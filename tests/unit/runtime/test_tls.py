"""Connections under TLS: the limit on handshakes, certificates and their replacement.

That bytes arrive as on a plain connection is tested in tests/conformance/transport.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest
from support.security.certificates import PASSWORD, Authority
from support.until import until

from minikafka.base.config.security import SecurityKeys
from minikafka.base.errors import ConfigError
from minikafka.base.ports import Buffer, Link, Listener
from minikafka.runtime.tls import RenewableTls, TlsConnected, TlsServer
from minikafka.runtime.tls_keys import source_of
from minikafka.runtime.transport import SocketTransport


class Handler:
    def __init__(self) -> None:
        self.link: Link
        self.received = b""
        self.ended: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()
        self._buffer = bytearray(1024)

    def connected(self, link: Link) -> None:
        self.link = link

    def get_buffer(self, hint: int) -> Buffer:
        return memoryview(self._buffer)

    def buffer_updated(self, count: int) -> None:
        self.received += self._buffer[:count]

    def disconnected(self, error: Exception | None) -> None:
        self.ended.set_result(error)

    def drained(self) -> None: ...


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("ca"))


@pytest.fixture(scope="module")
def foreign(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("foreign"), "foreign")


@dataclass
class Served:
    """A listener under TLS, and the handlers of its connections."""

    transport: SocketTransport
    tls: TlsServer
    listener: Listener
    accepted: list[Handler] = field(default_factory=list)

    async def connect(self, keys: SecurityKeys) -> Handler:
        tls = self.transport.tls(keys, server=False)
        return cast(
            "Handler", await self.transport.connect(Handler, "localhost", self.listener.port, tls)
        )

    def socket(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.listener.port), timeout=10)


Serve = Callable[..., Any]


@pytest.fixture
async def serve() -> AsyncIterator[Serve]:
    opened: list[Served] = []

    async def begin(keys: SecurityKeys, places: int = 2) -> Served:
        transport = SocketTransport()
        accepted: list[Handler] = []

        def accept() -> Handler:
            accepted.append(Handler())
            return accepted[-1]

        source = source_of(keys, server=True)
        tls = TlsServer(source.load, source.files, places)
        listener = await transport.listen(accept, "127.0.0.1", 0, tls)
        opened.append(Served(transport, tls, listener, accepted))
        return opened[-1]

    yield begin
    for served in opened:
        await served.listener.close()
        for handler in served.accepted:
            handler.link.abort()
            await handler.ended


def of_server(authority: Authority, **keys: Any) -> SecurityKeys:
    return SecurityKeys(
        ssl_keystore_location=str(authority.server().pem),
        ssl_truststore_location=str(authority.pem),
        **keys,
    )


def of_client(authority: Authority, **keys: Any) -> SecurityKeys:
    return SecurityKeys(ssl_truststore_location=str(authority.pem), **keys)


@pytest.mark.key("ssl.keystore.location", "ssl.keystore.password")
async def test_certificate_of_a_client_is_known_to_the_handler(
    serve: Serve, authority: Authority
) -> None:
    alice = authority.client("alice")
    served = await serve(of_server(authority, ssl_client_auth="required"))
    client = await served.connect(
        of_client(
            authority, ssl_keystore_location=str(alice.pkcs12), ssl_keystore_password=PASSWORD
        )
    )
    client.link.send([b"hello"])
    await until(lambda: served.accepted[0].received == b"hello")
    assert served.accepted[0].link.peer_certificate() == alice.der
    client.link.close()


@pytest.mark.key("ssl.client.auth", "ssl.truststore.location")
@pytest.mark.parametrize("who", ["nobody", "foreign", "expired"])
async def test_client_without_a_valid_certificate_is_refused_if_one_is_required(
    serve: Serve, authority: Authority, foreign: Authority, who: str
) -> None:
    served = await serve(of_server(authority, ssl_client_auth="required"))
    keystores = {
        "nobody": {},
        "foreign": {"ssl_keystore_location": str(foreign.client("alice").pem)},
        "expired": {"ssl_keystore_location": str(authority.expired_client("alice").pem)},
    }
    try:
        client = await served.connect(of_client(authority, **keystores[who]))
        client.link.send([b"hello"])
        await client.ended
    except OSError:
        pass
    assert served.accepted[0].received == b""
    assert isinstance(await served.accepted[0].ended, ssl.SSLError)


async def test_client_refuses_the_certificate_of_a_foreign_authority(
    serve: Serve, authority: Authority, foreign: Authority
) -> None:
    served = await serve(of_server(foreign))
    with pytest.raises(ssl.SSLCertVerificationError):
        await served.connect(of_client(authority))


@pytest.mark.key("ssl.endpoint.identification.algorithm")
@pytest.mark.parametrize(("algorithm", "is_refused"), [("https", True), ("", False)])
async def test_client_checks_the_host_name_of_the_server_unless_told_otherwise(
    serve: Serve, authority: Authority, algorithm: str, is_refused: bool
) -> None:
    other = SecurityKeys(ssl_keystore_location=str(authority.server("other.example").pem))
    served = await serve(other)
    keys = of_client(authority, ssl_endpoint_identification_algorithm=algorithm)
    if is_refused:
        with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
            await served.connect(keys)
    else:
        (await served.connect(keys)).link.close()


async def test_new_connections_get_the_changed_certificate_and_old_ones_live_on(
    serve: Serve, authority: Authority
) -> None:
    keys = of_server(authority)
    file = Path(cast("str", keys.ssl_keystore_location))
    served = await serve(keys)
    old = await served.connect(of_client(authority))
    first = old.link.peer_certificate()
    assert not served.tls.refresh()
    file.write_bytes(b"damaged")  # noqa: ASYNC240
    with pytest.raises(ConfigError, match=r"ssl\.keystore"):
        served.tls.refresh()
    assert not served.tls.refresh()
    same = await served.connect(of_client(authority))
    assert same.link.peer_certificate() == first
    file.write_bytes(authority.server().pem.read_bytes())  # noqa: ASYNC240
    assert served.tls.refresh()
    new = await served.connect(of_client(authority))
    assert new.link.peer_certificate() != first
    old.link.send([b"still here"])
    await until(lambda: served.accepted[0].received == b"still here")
    for handler in (old, same, new):
        handler.link.close()


async def test_server_answers_the_end_of_a_connection(serve: Serve, authority: Authority) -> None:
    """Some clients wait for it for 30 s."""
    served = await serve(of_server(authority))
    context = ssl.create_default_context(cafile=str(authority.pem))

    def end() -> None:
        with served.socket() as plain:
            secured = context.wrap_socket(plain, server_hostname="localhost")
            secured.sendall(b"all")
            secured.unwrap().close()

    await asyncio.to_thread(end)
    assert await served.accepted[0].ended is None
    assert served.accepted[0].received == b"all"


async def test_connection_has_no_tls_state_before_its_first_bytes(
    serve: Serve, authority: Authority
) -> None:
    served = await serve(of_server(authority))
    with served.socket() as silent:
        await until(lambda: served.accepted and hasattr(served.accepted[0], "link"))
        link = cast("Any", served.accepted[0].link)
        assert link._tls is None
        silent.sendall(b"\x16\x03\x01\x00\x05")
        await until(lambda: link._tls is not None)


async def test_client_that_does_not_speak_tls_is_disconnected(
    serve: Serve, authority: Authority
) -> None:
    served = await serve(of_server(authority))
    with served.socket() as plain:
        plain.sendall(b"\x00\x00\x00\x14")
        await until(lambda: served.accepted and served.accepted[0].ended.done())
        assert served.accepted[0].received == b""


async def test_only_some_connections_shake_hands_at_once_and_stalled_ones_make_room(
    serve: Serve, authority: Authority
) -> None:
    served = await serve(of_server(authority), places=2)
    stalled = [served.socket() for _ in range(6)]
    for one in stalled:
        one.sendall(b"\x16\x03\x01\x00\x05")
    await until(lambda: len(served.accepted) == 6)
    await until(lambda: len(served.tls._shaking) + len(served.tls._waiting) == 6)
    assert len(served.tls._shaking) == 2
    client = await served.connect(of_client(authority))
    client.link.send([b"served"])
    await until(lambda: served.accepted[6].received == b"served")
    assert len(served.tls._shaking) <= 2
    client.link.close()
    for one in stalled:
        one.close()
    for handler in served.accepted[:6]:
        await handler.ended
        assert cast("Any", handler.link)._tls is None


async def test_little_is_read_for_a_handler_with_a_small_buffer_that_has_stopped_reading(
    serve: Serve, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before authentication, each of many connections may wait with what was read."""

    def stop_reading(handler: Handler, count: int) -> None:
        handler.received += handler._buffer[:count]
        if len(handler.received) == count:
            handler.link.pause_reading()

    served = await serve(of_server(authority))
    client = await served.connect(of_client(authority))
    monkeypatch.setattr(Handler, "buffer_updated", stop_reading)
    client.link.send([bytes(1 << 20)])
    await until(lambda: served.accepted and len(served.accepted[0].received) > 0)
    link = cast("Any", served.accepted[0].link)
    assert link._incoming.pending <= 16 << 10
    link.resume_reading()
    await until(lambda: len(served.accepted[0].received) == 1 << 20)
    client.link.close()


async def test_handshake_of_a_server_that_says_nothing_can_be_cancelled() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        client = RenewableTls(ssl.create_default_context)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await SocketTransport().connect(
                    Handler, "127.0.0.1", silent.getsockname()[1], client
                )
        accepted, _ = silent.accept()
        with accepted:
            accepted.setblocking(False)
            async with asyncio.timeout(10):
                while await asyncio.get_running_loop().sock_recv(accepted, 4096):
                    pass


async def test_connecting_that_is_cancelled_as_the_socket_opens_leaves_no_error_behind(
    serve: Serve, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = await serve(of_server(authority))
    made = TlsConnected.connection_made

    def cancel(connection: TlsConnected, transport: asyncio.BaseTransport) -> None:
        made(connection, transport)
        connecting.cancel()

    monkeypatch.setattr(TlsConnected, "connection_made", cancel)
    connecting = asyncio.ensure_future(served.connect(of_client(authority)))
    with pytest.raises(asyncio.CancelledError):
        await connecting
    await until(lambda: bool(served.accepted))
    await served.accepted[0].ended


@pytest.mark.key("ssl.enabled.protocols")
@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
async def test_listener_serves_only_the_enabled_protocols(
    serve: Serve, authority: Authority, version: str
) -> None:
    served = await serve(of_server(authority, ssl_enabled_protocols=(version,)))
    [other] = {"TLSv1.2", "TLSv1.3"} - {version}
    with pytest.raises(ssl.SSLError):
        await served.connect(of_client(authority, ssl_enabled_protocols=(other,)))
    (await served.connect(of_client(authority, ssl_enabled_protocols=(version,)))).link.close()


def test_server_without_a_keystore_is_refused_with_the_key() -> None:
    with pytest.raises(ConfigError, match=r"ssl\.keystore\.location is not set"):
        SocketTransport().tls(SecurityKeys(), server=True)


@pytest.mark.key(
    "ssl.keystore.key",
    "ssl.keystore.certificate.chain",
    "ssl.key.password",
    "ssl.truststore.certificates",
)
def test_key_and_certificates_may_be_values_of_the_configuration(authority: Authority) -> None:
    own = authority.server()
    keys = SecurityKeys(
        ssl_keystore_key=own.locked_key_pem.decode(),
        ssl_key_password=PASSWORD,
        ssl_keystore_certificate_chain=own.chain_pem.decode(),
        ssl_truststore_certificates=authority.pem_text,
        ssl_client_auth="required",
    )
    assert SocketTransport().tls(keys, server=True).context.get_ca_certs()


@pytest.mark.parametrize(
    ("keys", "reason"),
    [
        ({"ssl_keystore_key": "x"}, "ssl.keystore.certificate.chain is not set"),
        (
            {"ssl_keystore_key": "x", "ssl_keystore_location": "y"},
            "set ssl.keystore.location or ssl.keystore.key, not both",
        ),
        (
            {"ssl_truststore_certificates": "x", "ssl_truststore_location": "y"},
            "set ssl.truststore.location or ssl.truststore.certificates, not both",
        ),
    ],
)
def test_contradictory_keys_are_refused(keys: dict[str, str], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        SocketTransport().tls(SecurityKeys(**keys), server=True)


def test_java_keystore_is_refused_with_the_command_that_converts_it(tmp_path: Path) -> None:
    file = tmp_path / "server.jks"
    file.write_bytes(b"\xfe\xed\xfe\xed\x00\x00\x00\x02")
    with pytest.raises(ConfigError, match="keytool -importkeystore -srckeystore"):
        SocketTransport().tls(SecurityKeys(ssl_keystore_location=str(file)), server=True)


@pytest.mark.key("ssl.keystore.type", "ssl.truststore.type", "ssl.truststore.password")
def test_stores_have_the_named_format(authority: Authority) -> None:
    keys = {
        "ssl_keystore_location": str(authority.server().pem),
        "ssl_truststore_location": str(authority.pkcs12),
        "ssl_truststore_password": PASSWORD,
        "ssl_client_auth": "required",
    }
    right = {"ssl_keystore_type": "PEM", "ssl_truststore_type": "PKCS12"}
    SocketTransport().tls(SecurityKeys(**keys, **right), server=True)
    for name, other in (("ssl.keystore", "PKCS12"), ("ssl.truststore", "PEM")):
        wrong = right | {f"{name.replace('.', '_')}_type": other}
        with pytest.raises(ConfigError, match=f"{name}.type is {other}"):
            SocketTransport().tls(SecurityKeys(**keys, **wrong), server=True)


@pytest.mark.key("ssl.cipher.suites")
async def test_listener_serves_only_the_named_cipher_suites(
    serve: Serve, authority: Authority
) -> None:
    suite, other = (
        f"TLS_ECDHE_ECDSA_WITH_AES_{bits}" for bits in ("128_GCM_SHA256", "256_GCM_SHA384")
    )
    suites = [suite.replace("ECDSA", kind) for kind in ("ECDSA", "RSA")]
    others = [other.replace("ECDSA", kind) for kind in ("ECDSA", "RSA")]
    served = await serve(of_server(authority, ssl_cipher_suites=tuple(suites)))
    with pytest.raises(ssl.SSLError):
        await served.connect(of_client(authority, ssl_cipher_suites=tuple(others)))
    (await served.connect(of_client(authority, ssl_cipher_suites=tuple(suites)))).link.close()


@pytest.mark.parametrize("server", [True, False])
def test_expiry_of_all_certificates_in_use_is_known(authority: Authority, server: bool) -> None:
    own = authority.ending("broker", 3, "localhost")
    keys = SecurityKeys(
        ssl_keystore_location=str(own.pkcs12),
        ssl_keystore_password=PASSWORD,
        ssl_truststore_location=str(authority.pem),
    )
    first, *_, last = SocketTransport().tls(keys, server=server).expiries
    ends_ms = int(own.x509.not_valid_after_utc.timestamp() * 1000)
    assert first == (str(own.pkcs12), own.distinguished_name, ends_ms)
    assert last.source == str(authority.pem)
    assert last.ends_ms > ends_ms


def test_expiry_of_a_certificate_in_the_configuration_names_its_key(authority: Authority) -> None:
    own = authority.server()
    keys = SecurityKeys(
        ssl_keystore_key=own.key_pem.decode(),
        ssl_keystore_certificate_chain=own.chain_pem.decode(),
        ssl_truststore_certificates=authority.pem_text,
    )
    sources = {each.source for each in SocketTransport().tls(keys, server=True).expiries}
    assert sources == {"ssl.keystore.certificate.chain", "ssl.truststore.certificates"}


def test_expiry_is_that_of_the_new_certificate_after_a_file_was_replaced(
    authority: Authority, tmp_path: Path
) -> None:
    file = tmp_path / "own.pem"
    file.write_bytes(authority.ending("server", 3, "localhost").pem.read_bytes())
    tls = SocketTransport().tls(SecurityKeys(ssl_keystore_location=str(file)), server=True)
    before = tls.expiries[0]
    file.write_bytes(authority.server().pem.read_bytes())
    assert tls.refresh()
    assert tls.expiries[0].ends_ms > before.ends_ms
