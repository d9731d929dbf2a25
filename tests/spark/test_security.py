"""Spark over listeners with TLS and SASL: logins, certificates, errors, and no secret in any text."""

from __future__ import annotations

import asyncio
import io
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import closing, redirect_stdout, suppress
from pathlib import Path

import pytest
from confluent_kafka.admin import (
    AdminClient,
    NewTopic,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame
from support.clusters.apache_kafka import apache_kafka, needs_kafka
from support.security.certificates import PASSWORD, Authority
from support.security.client_cells import REAUTH_MS, Place
from support.security.client_logins import Login
from support.spark.secured_rows import read, write

from minikafka.base.config.client import client_config
from minikafka.base.errors import ConfigError, KafkaError
from minikafka.base.properties import Property, parse_properties
from minikafka.client.security import connector_from
from minikafka.runtime.clock import SystemClock, SystemRng
from minikafka.security.jaas import PLAIN_MODULE, SCRAM_MODULE
from minikafka.spark.key_stores import prepared
from minikafka.spark.pipelines import archive, copy, restore
from minikafka.spark.pipelines.archive import ArchiveSettings
from minikafka.spark.pipelines.copy import CopySettings
from minikafka.spark.pipelines.restore import RestoreSettings
from minikafka.spark.pipelines.session.report import Report
from minikafka.spark.source import options as source_options
from minikafka.spark.wire import security
from minikafka.spark.wire.connection import BlockingConnection
from minikafka.spark.wire.protocol import METADATA, metadata_request

VALUES = [b"%d" % number for number in range(100)]
SECRET = "alice-secret"
BEARER = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """Return one broker with all four listeners. SASL_PLAINTEXT ends a session after `REAUTH_MS`."""
    with Place(tmp_path_factory.mktemp("place"), 1) as running:
        yield running


@pytest.fixture(scope="module")
def topic(place: Place) -> str:
    return asyncio.run(place.topic())


@pytest.fixture
def options(place: Place, tmp_path: Path) -> Callable[..., dict[str, str]]:
    """Return a function that returns the options of a login, for the listener of its protocol or another one."""

    def of(login: Login, listener: str = "", **changes: str) -> dict[str, str]:
        path = login.write(tmp_path, "login")
        given = {f"kafka.{name}": value for name, value in login._properties(path).items()}
        given["kafka.bootstrap.servers"] = place.brokers.bootstrap(listener or login.protocol)
        return given | {name.replace("_", "."): value for name, value in changes.items()}

    return of


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"])
@pytest.mark.parametrize("protocol", ["SASL_SSL", "SASL_PLAINTEXT"])
def test_rows_are_written_and_read_after_a_login(place, options, mechanism, protocol):
    given = options(place.sasl(mechanism, protocol=protocol))
    topic = asyncio.run(place.topic())
    write(given, topic, VALUES)
    assert sorted(read(given, topic)) == sorted(VALUES)


@pytest.mark.parametrize(
    "form", ["pkcs12", "pem file", "locked pem file", "inline", "inline in one line"]
)
def test_client_shows_its_certificate_from_any_format(place, topic, form):
    own, trusted = place.brokers.authority.client("alice"), place.brokers.authority
    flat = str.splitlines
    stores = {
        "pkcs12": {
            "truststore.location": str(trusted.pkcs12),
            "truststore.password": PASSWORD,
            "keystore.location": str(own.pkcs12),
            "keystore.password": PASSWORD,
        },
        "pem file": {
            "truststore.location": str(trusted.pem),
            "keystore.type": "PEM",
            "keystore.location": str(own.pem),
        },
        "locked pem file": {
            "truststore.location": str(trusted.pem),
            "keystore.location": str(own.locked_pem),
            "key.password": PASSWORD,
        },
        "inline": {
            "truststore.certificates": trusted.pem_text,
            "keystore.key": own.key_file.read_text(),
            "keystore.certificate.chain": own.chain_file.read_text(),
        },
        "inline in one line": {
            "truststore.certificates": " ".join(flat(trusted.pem_text)),
            "keystore.key": " ".join(flat(own.key_file.read_text())),
            "keystore.certificate.chain": " ".join(flat(own.chain_file.read_text())),
        },
    }
    given = {
        "kafka.bootstrap.servers": place.brokers.bootstrap("SSL"),
        "kafka.security.protocol": "SSL",
        **{f"kafka.ssl.{name}": value for name, value in stores[form].items()},
    }
    assert read(given, topic) is not None


def test_tasks_get_pem_texts_of_stores_in_pkcs12(place, topic, options):
    given = options(place.certificate()) | {"subscribe": topic}
    found = prepared(source_options.parse(given)).security
    assert found.ssl_keystore_location is None
    assert "PRIVATE KEY" in str(found.ssl_keystore_key)
    assert "PRIVATE KEY" not in repr(found)


def test_token_may_be_an_option_of_the_login_module(place, topic, options):
    login = place.sasl("OAUTHBEARER")
    jaas = f'{BEARER} required token="{login.bearer}";'
    given = options(login) | {"kafka.sasl.jaas.config": jaas}
    del given["kafka.sasl.oauthbearer.token.endpoint.url"]
    assert read(given, topic) is not None


REFUSALS = [
    ("wrong password", "broker refuses the login of alice .* kafka.sasl.jaas.config"),
    ("expired token", "kafka.sasl.oauthbearer.token.endpoint.url.* expired at .*: write a new one"),
    (
        "foreign authority",
        "certificate of the broker is not trusted.*kafka.ssl.truststore.location",
    ),
    ("foreign certificate", "broker has refused the client: .*kafka.ssl.keystore.location"),
    ("other host name", "not valid for '127.0.0.1'; connect to a name in the certificate"),
    (
        "plaintext to SSL",
        "listener uses TLS: set option kafka.security.protocol to SSL or SASL_SSL",
    ),
    ("plaintext to SASL_PLAINTEXT", "demands a login: set option kafka.security.protocol to SASL_"),
    ("SSL to PLAINTEXT", "does not use TLS: set option kafka.security.protocol to PLAINTEXT"),
    ("SSL to SASL_SSL", "demands a login: set option kafka.security.protocol to SASL_SSL"),
    ("SASL_PLAINTEXT to PLAINTEXT", "serves no login: correct option kafka.security.protocol"),
    ("SASL_SSL to SASL_PLAINTEXT", "does not use TLS: set option .*protocol to SASL_PLAINTEXT"),
    ("no login module", "option kafka.sasl.jaas.config is not set, but kafka.security.protocol is"),
    ("no file", "option kafka.ssl.truststore.location: /nowhere.pem cannot be read"),
    ("java keystore", "kafka.ssl.truststore.location: .* convert it: keytool -importkeystore"),
    ("locked key without password", "private key is encrypted, and kafka.ssl.key.password is not"),
    ("mechanism that is not served", "kafka.sasl.mechanism must be one of PLAIN, SCRAM-SHA-256"),
]


@pytest.mark.parametrize(("case", "message"), REFUSALS, ids=[case for case, _ in REFUSALS])
def test_connection_that_cannot_be_made_fails_with_one_sentence(
    place, topic, options, tmp_path, case, message
):
    plain, certificate = place.sasl("PLAIN"), place.certificate()
    clear = place.sasl("PLAIN", protocol="SASL_PLAINTEXT")
    java = tmp_path / "trust.jks"
    java.write_bytes(b"\xfe\xed\xfe\xed\x00\x00\x00\x02")
    servers, trusted = "kafka.bootstrap.servers", "kafka.ssl.truststore.location"
    made = {
        "wrong password": lambda: options(place.sasl("SCRAM-SHA-512", "wrong")),
        "expired token": lambda: options(place.sasl("OAUTHBEARER", "wrong")),
        "foreign authority": lambda: options(plain) | {trusted: str(place.brokers.foreign.pem)},
        "foreign certificate": lambda: options(place.foreign_certificate()),
        "other host name": lambda: (
            options(plain)
            | {servers: place.brokers.bootstrap("SASL_SSL").replace("localhost", "127.0.0.1")}
        ),
        "plaintext to SSL": lambda: {servers: place.brokers.bootstrap("SSL")},
        "plaintext to SASL_PLAINTEXT": lambda: {servers: place.brokers.bootstrap("SASL_PLAINTEXT")},
        "SSL to PLAINTEXT": lambda: options(certificate, "PLAINTEXT"),
        "SSL to SASL_SSL": lambda: options(certificate, "SASL_SSL"),
        "SASL_PLAINTEXT to PLAINTEXT": lambda: options(clear, "PLAINTEXT"),
        "SASL_SSL to SASL_PLAINTEXT": lambda: options(plain, "SASL_PLAINTEXT"),
        "no login module": lambda: {
            name: value for name, value in options(plain).items() if "jaas" not in name
        },
        "no file": lambda: options(plain) | {trusted: "/nowhere.pem"},
        "java keystore": lambda: (
            options(plain) | {trusted: str(java), "kafka.ssl.truststore.type": "JKS"}
        ),
        "locked key without password": lambda: {
            servers: place.brokers.bootstrap("SSL"),
            "kafka.security.protocol": "SSL",
            trusted: str(place.brokers.authority.pem),
            "kafka.ssl.keystore.location": str(place.brokers.authority.client("alice").locked_pem),
        },
        "mechanism that is not served": lambda: options(plain) | {"kafka.sasl.mechanism": "GSSAPI"},
    }
    with pytest.raises((security.ConnectionNotAllowed, ConfigError), match=message) as raised:
        read(made[case](), topic)
    assert SECRET not in str(raised.value)
    assert "\n" not in str(raised.value)


def test_user_without_rights_reads_which_right_is_missing(place, topic, options):
    given = options(Login("SSL", place.brokers.authority, place.brokers.authority.client("bob")))
    for attempt in (lambda: read(given, topic), lambda: write(given, topic, VALUES)):
        with pytest.raises(
            KafkaError, match=f"gives the user the right Describe on topic {topic}$"
        ):
            attempt()


def test_connection_logs_in_again_before_its_session_ends(place, topic, options):
    given = options(place.sasl("SCRAM-SHA-256", protocol="SASL_PLAINTEXT")) | {"subscribe": topic}
    parsed = source_options.parse(given)
    [(host, port)] = parsed.servers
    connection = BlockingConnection(host, port, "test", 10, parsed.security)
    body = metadata_request([topic])
    ends = time.monotonic() + 2.5 * REAUTH_MS / 1000
    while (
        time.monotonic() < ends
    ):  # the broker closes a connection without a new login after REAUTH_MS
        for _ in range(3):
            connection.send(METADATA, body)
        assert all(topic.encode() in bytes(connection.receive()) for _ in range(3))
    connection.close()


def test_token_that_expires_during_a_connection_is_named(place, topic, options):
    given = options(place.sasl("OAUTHBEARER", token_s=2)) | {"subscribe": topic}
    parsed = source_options.parse(given)
    [(host, port)] = parsed.servers
    ends = time.monotonic() + 10

    def request_again_and_again() -> None:
        while time.monotonic() < ends:
            connection = BlockingConnection(host, port, "test", 10, parsed.security)
            with closing(connection), suppress(OSError):  # the broker ends the session
                while time.monotonic() < ends:
                    connection.call(METADATA, metadata_request([topic]))

    with pytest.raises(ConfigError, match="has a token that expired at"):
        request_again_and_again()


def test_replaced_file_of_authorities_is_used_for_the_next_connection(
    place, topic, options, tmp_path
):
    file = tmp_path / "authorities.pem"
    given = options(place.sasl("PLAIN")) | {"kafka.ssl.truststore.location": str(file)}
    shutil.copy(place.brokers.foreign.pem, file)
    with pytest.raises(security.ConnectionNotAllowed, match="not trusted"):
        read(given, topic)
    shutil.copy(place.brokers.authority.pem, file)
    assert read(given, topic) is not None


def _plans(frame: DataFrame) -> str:
    printed = io.StringIO()
    with redirect_stdout(printed):
        for mode in ("extended", "cost", "formatted"):
            frame.explain(mode=mode)
    return printed.getvalue()


def test_stream_over_tls_continues_after_a_wrong_password_and_shows_no_secret(
    spark, place, options, tmp_path
):
    source, target = asyncio.run(place.topic()), asyncio.run(place.topic())
    right = options(place.sasl("SCRAM-SHA-512"))
    wrong = options(place.sasl("SCRAM-SHA-512", "wrong-secret"))
    checkpoint = tmp_path / "checkpoint"

    def copied(given: dict[str, str]) -> tuple[str, int]:
        rows = spark.readStream.format("minikafka").options(**given, subscribe=source)
        frame = rows.option("startingOffsets", "earliest").load()
        writer = frame.writeStream.format("minikafka").options(**right, topic=target)
        writer = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
        query = writer.start()
        query.awaitTermination()
        progress = query.lastProgress
        return _plans(frame) + str(progress), progress["numInputRows"]

    write(right, source, VALUES[:40])
    seen, first = copied(right)
    write(right, source, VALUES[40:])
    with pytest.raises(StreamingQueryException, match="refuses the login of alice") as raised:
        copied(wrong)
    assert "Traceback" not in str(raised.value)
    more, second = copied(right)
    assert (first, second) == (40, 60)
    assert sorted(read(right, target)) == sorted(VALUES)
    files = [file.read_text("latin-1") for file in checkpoint.rglob("*") if file.is_file()]
    texts = [seen, more, str(raised.value), *files]
    assert not [text for text in texts if SECRET in text or "wrong-secret" in text]


def test_pipelines_connect_as_the_command_config_says(spark, place, options, tmp_path):
    topics = [asyncio.run(place.topic()) for _ in range(3)]
    given = options(place.sasl("PLAIN"))
    write(given, topics[0], VALUES)
    protected = {"security": {n: v for n, v in given.items() if n != "kafka.bootstrap.servers"}}
    servers = given["kafka.bootstrap.servers"]
    copying = CopySettings(
        tuple(topics[:1]),
        topics[1],
        servers,
        servers,
        str(tmp_path / "c"),
        exactly_once=False,  # one broker keeps no state of transactions
        **protected,
    )
    assert copy.run(spark, copying, Report()).facts["rows_written"] == len(VALUES)
    directory = str(tmp_path / "archive")
    saving = ArchiveSettings(servers, tuple(topics[1:2]), directory, **protected)
    assert archive.run(spark, saving, Report()).facts["records"] == len(VALUES)
    connector = connector_from(
        client_config(
            Property(name.removeprefix("kafka."), value, 1) for name, value in given.items()
        ),
        SystemRng(),
        SystemClock(),
    )
    loading = RestoreSettings(
        servers, directory, topics[1], topics[2], connector=connector, **protected
    )
    assert restore.run(spark, loading, Report()).facts["verified"] is True
    assert sorted(read(given, topics[2])) == sorted(VALUES)


@needs_kafka
async def test_rows_are_written_and_read_on_apache_kafka_over_tls_after_a_login(tmp_path):
    authority = Authority(tmp_path / "ca")
    users = f'{PLAIN_MODULE} required user_alice="{SECRET}";'
    settings = {
        "ssl.keystore.location": authority.server("localhost").pkcs12,
        "ssl.keystore.type": "PKCS12",
        "ssl.keystore.password": PASSWORD,
        "ssl.key.password": PASSWORD,
        "ssl.truststore.location": authority.pem,
        "ssl.truststore.type": "PEM",
        "listener.name.ssl.ssl.client.auth": "required",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
        "listener.name.sasl_ssl.plain.sasl.jaas.config": users,
        "listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config": f"{SCRAM_MODULE} required;",
        "connections.max.reauth.ms": REAUTH_MS,
        "offsets.topic.replication.factor": 1,
    }
    async with apache_kafka(tmp_path, ("SSL", "SASL_SSL"), settings) as kafka:
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap, "log_level": 0})
        [made] = admin.create_topics([NewTopic("lines", 2)]).values()
        await asyncio.to_thread(made.result, 60)
        credential = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
        user = UserScramCredentialUpsertion("alice", credential, SECRET.encode())
        [changed] = admin.alter_user_scram_credentials([user]).values()
        await asyncio.to_thread(changed.result, 60)
        logins = [
            Login("SSL", authority, authority.client("alice")),
            *(
                Login("SASL_SSL", authority, None, mechanism, "alice", SECRET)
                for mechanism in ("PLAIN", "SCRAM-SHA-512")
            ),
        ]
        for number, login in enumerate(logins, 1):
            path = login.write(tmp_path, f"login-{number}")
            given = {f"kafka.{name}": value for name, value in login._properties(path).items()}
            given["kafka.bootstrap.servers"] = kafka.secured[login.protocol]
            await asyncio.to_thread(write, given, "lines", VALUES)
            assert len(await asyncio.to_thread(read, given, "lines")) == number * len(VALUES)
            if login.password:
                given["kafka.sasl.jaas.config"] = given["kafka.sasl.jaas.config"].replace(
                    SECRET, "wrong"
                )
                with pytest.raises(
                    security.ConnectionNotAllowed, match="refuses the login of alice"
                ):
                    await asyncio.to_thread(read, given, "lines")
        for listener, message in (("SSL", "uses TLS"), ("SASL_SSL", "uses TLS")):
            servers = {"kafka.bootstrap.servers": kafka.secured[listener]}
            with pytest.raises(security.ConnectionNotAllowed, match=message):
                await asyncio.to_thread(read, servers, "lines")
        parsed = source_options.parse(
            {**given, "kafka.sasl.jaas.config": _jaas(path), "subscribe": "lines"}
        )
        connection = BlockingConnection(*parsed.servers[0], "test", 10, parsed.security)
        ends = time.monotonic() + 2.5 * REAUTH_MS / 1000
        while time.monotonic() < ends:
            assert b"lines" in bytes(connection.call(METADATA, metadata_request(["lines"])))
        connection.close()


def _jaas(path: Path) -> str:
    """Return the login module in a file of a login."""
    entries = parse_properties(path.with_suffix(".properties").read_text())
    return next(entry.value for entry in entries if entry.name == "sasl.jaas.config")
