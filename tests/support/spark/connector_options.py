"""The options that Spark's own Kafka connector 4.2 publishes, and what becomes of each with `format("minikafka")`.

Sources: the guide "Structured Streaming + Kafka Integration" of Spark, the class KafkaSourceProvider, and the classes
ConsumerConfig, ProducerConfig and AdminClientConfig of kafka-clients 3.9.2.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final
from zipfile import ZipFile

from minikafka.base.errors import ConfigError
from minikafka.spark.option_map import SERVERS
from minikafka.spark.sink import options as sink_options
from minikafka.spark.source import options as source_options
from minikafka.spark.source.options import Mode

_OPTIONS: Final = """
assign subscribe subscribePattern startingTimestamp startingOffsetsByTimestamp startingOffsets
startingOffsetsByTimestampStrategy endingTimestamp endingOffsetsByTimestamp endingOffsets
maxOffsetsPerTrigger minOffsetsPerTrigger maxTriggerDelay minPartitions maxRecordsPerPartition
failOnDataLoss includeHeaders groupIdPrefix topic kafkaConsumer.pollTimeoutMs
fetchOffset.numRetries fetchOffset.retryIntervalMs
"""
OPTIONS: Final = _OPTIONS.split()
"""The options of the connector itself."""

_SETTINGS: Final = """
acks allow.auto.create.topics auto.commit.interval.ms auto.include.jmx.reporter
auto.offset.reset batch.size bootstrap.controllers bootstrap.servers buffer.memory check.crcs
client.dns.lookup client.id client.rack compression.gzip.level compression.lz4.level
compression.type compression.zstd.level connections.max.idle.ms default.api.timeout.ms
delivery.timeout.ms enable.auto.commit enable.idempotence enable.metrics.push
exclude.internal.topics fetch.max.bytes fetch.max.wait.ms fetch.min.bytes group.id
group.instance.id group.protocol group.remote.assignor heartbeat.interval.ms interceptor.classes
internal.leave.group.on.close internal.throw.on.fetch.stable.offset.unsupported isolation.level
key.deserializer key.serializer linger.ms max.block.ms max.in.flight.requests.per.connection
max.partition.fetch.bytes max.poll.interval.ms max.poll.records max.request.size
metadata.max.age.ms metadata.max.idle.ms metadata.recovery.strategy metric.reporters
metrics.num.samples metrics.recording.level metrics.sample.window.ms
partition.assignment.strategy partitioner.adaptive.partitioning.enable
partitioner.availability.timeout.ms partitioner.class partitioner.ignore.keys
receive.buffer.bytes reconnect.backoff.max.ms reconnect.backoff.ms request.timeout.ms retries
retry.backoff.max.ms retry.backoff.ms sasl.client.callback.handler.class sasl.jaas.config
sasl.kerberos.kinit.cmd sasl.kerberos.min.time.before.relogin sasl.kerberos.service.name
sasl.kerberos.ticket.renew.jitter sasl.kerberos.ticket.renew.window.factor
sasl.login.callback.handler.class sasl.login.class sasl.login.connect.timeout.ms
sasl.login.read.timeout.ms sasl.login.refresh.buffer.seconds
sasl.login.refresh.min.period.seconds sasl.login.refresh.window.factor
sasl.login.refresh.window.jitter sasl.login.retry.backoff.max.ms sasl.login.retry.backoff.ms
sasl.mechanism sasl.oauthbearer.clock.skew.seconds sasl.oauthbearer.expected.audience
sasl.oauthbearer.expected.issuer sasl.oauthbearer.header.urlencode
sasl.oauthbearer.jwks.endpoint.refresh.ms sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms
sasl.oauthbearer.jwks.endpoint.retry.backoff.ms sasl.oauthbearer.jwks.endpoint.url
sasl.oauthbearer.scope.claim.name sasl.oauthbearer.sub.claim.name
sasl.oauthbearer.token.endpoint.url security.protocol security.providers send.buffer.bytes
session.timeout.ms socket.connection.setup.timeout.max.ms socket.connection.setup.timeout.ms
ssl.cipher.suites ssl.enabled.protocols ssl.endpoint.identification.algorithm
ssl.engine.factory.class ssl.key.password ssl.keymanager.algorithm
ssl.keystore.certificate.chain ssl.keystore.key ssl.keystore.location ssl.keystore.password
ssl.keystore.type ssl.protocol ssl.provider ssl.secure.random.implementation
ssl.trustmanager.algorithm ssl.truststore.certificates ssl.truststore.location
ssl.truststore.password ssl.truststore.type transaction.timeout.ms transactional.id
value.deserializer value.serializer
"""
SETTINGS: Final = _SETTINGS.split()
"""The settings of consumers, producers and admin clients, which the connector accepts with the prefix `kafka.`."""

_NO_POOL: Final = "no effect: a Python worker keeps its connections to brokers as long as it runs"
SPARK: Final = {
    "spark.kafka.consumer.cache.*": _NO_POOL,
    "spark.kafka.consumer.fetchedData.cache.*": "no effect: a task decodes what it fetches at once",
    "spark.kafka.producer.cache.*": _NO_POOL,
    "spark.kafka.clusters.*": "no effect: delegation tokens are not supported; set the options `kafka.sasl.*`",
    "spark.sql.streaming.kafka.useDeprecatedOffsetFetching": "no effect: there is one way to find offsets",
}
"""The settings of Spark sessions that only the connector reads, each with what happens here."""

_LOGIN: Final = {
    "kafka.security.protocol": "SASL_PLAINTEXT",
    "kafka.sasl.mechanism": "PLAIN",
    "kafka.sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule required"
    ' username="reader" password="secret";',
}
_NEEDED: Final = {"kafka.ssl.": {"kafka.security.protocol": "SSL"}, "kafka.sasl.": _LOGIN}
"""Options without which the options with a prefix have no meaning."""
_UNKNOWN: Final = "unknown option"
_REFUSED: Final = re.compile(r"option \S+(?: of Spark's Kafka connector is not supported)?: (.*)")
"""The error that refuses an option whatever its value is."""


def names() -> list[str]:
    """Return the names of all options, in the order of the table in docs/spark-options.md."""
    return OPTIONS + [f"kafka.{name}" for name in SETTINGS]


def of_reads(name: str) -> str:
    """Return what a read or stream does with an option: "yes", "no effect: …" or "refused: …"."""
    base = {"subscribe": "events"} if name not in {"assign", "subscribePattern"} else {}
    stream = Mode.STREAM if name.endswith(("PerTrigger", "TriggerDelay")) else Mode.BATCH
    return _outcome(name, base, source_options.DEFAULTS, lambda o: source_options.parse(o, stream))


def of_writes(name: str) -> str:
    """Return what a write does with an option, as `of_reads`."""
    return _outcome(name, {}, sink_options.DEFAULTS, sink_options.parse)


def _outcome(
    name: str,
    base: Mapping[str, str],
    accepted: Mapping[str, str | None],
    parse: Callable[[dict[str, str]], Any],
) -> str:
    if name in accepted:
        return "yes"
    needed = next((found for start, found in _NEEDED.items() if name.startswith(start)), {})
    try:
        ignored = parse({SERVERS: "127.0.0.1:9092", **base, **needed, name: "1"}).ignored
    except ConfigError as error:
        match = _REFUSED.fullmatch(str(error))
        if match or _UNKNOWN in str(error):
            return f"refused: {match[1] if match else error}"
        return "yes"  # the value is wrong, so the name is known
    return f"no effect: {ignored[name]}" if name in ignored else "yes"


_SETTING: Final = re.compile(r"[a-z]+(\.[a-z0-9]+)*")
_CLASSES: Final = (
    "clients/consumer/ConsumerConfig",
    "clients/producer/ProducerConfig",
    "clients/admin/AdminClientConfig",
    "clients/CommonClientConfigs",
    "common/config/SslConfigs",
    "common/config/SaslConfigs",
)
_OTHER: Final = re.compile(r"default\.list\..*|rebalance\.timeout\.ms")
"""Names in these classes that are no settings of the clients."""
_OPTION: Final = re.compile(r"[a-z]+(\.[a-z]+)?")


def settings_in(jar: Path) -> set[str]:
    """Return the names with a dot among the settings in the classes of a jar kafka-clients."""
    with ZipFile(jar) as archive:
        found = {
            text
            for name in _CLASSES
            for text in _texts(archive.read(f"org/apache/kafka/{name}.class"))
        }
    return {
        text
        for text in found
        if "." in text and _SETTING.fullmatch(text) and not _OTHER.fullmatch(text)
    }


def option_texts_in(jar: Path) -> set[str]:
    """Return the words in lower case in the class KafkaSourceProvider of a jar of the connector."""
    with ZipFile(jar) as archive:
        data = archive.read("org/apache/spark/sql/kafka010/KafkaSourceProvider$.class")
    return {text for text in _texts(data) if _OPTION.fullmatch(text)}


_SIZES: Final = {3: 4, 4: 4, 5: 8, 6: 8, 7: 2, 8: 2, 9: 4, 10: 4, 11: 4, 12: 4, 15: 3, 16: 2}
_SIZES_SINCE_9: Final = {17: 4, 18: 4, 19: 2, 20: 2}


def _texts(data: bytes) -> Iterator[str]:
    """Yield the texts in the constant pool of a Java class (section 4.4 of the Java Virtual Machine Specification)."""
    (count,) = struct.unpack_from(">H", data, 8)
    sizes = _SIZES | _SIZES_SINCE_9
    at, index = 10, 1
    while index < count:
        tag = data[at]
        index += 2 if tag in {5, 6} else 1
        if tag != 1:
            at += 1 + sizes[tag]
            continue
        (size,) = struct.unpack_from(">H", data, at + 1)
        yield data[at + 3 : at + 3 + size].decode(errors="replace")
        at += 3 + size
