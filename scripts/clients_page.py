"""The text of docs/clients.md around the table of outcomes."""

from __future__ import annotations

CLIENTS = """\
# Clients

{generated}
The same scenarios run with every client library, unmodified, against a cluster of three brokers
(`tests/clients/test_matrix.py`). The table shows the outcomes of the last recorded run (`pytest --record-rows`). The
tests of a client are skipped if its build tools are missing: kafkajs needs `npm`, franz-go needs `go`, and the Java
client needs `javac` and the environment variable `MINIKAFKA_KAFKA_JARS`, which names a folder with Apache Kafka's jars.
`minikafka consume --group` and the consumer of `minikafka.client` have their own tests.

A copy reads committed records and writes them in transactions, together with the offsets. For most libraries a second
copy joins its group meanwhile. aiokafka and kafkajs do not send the generation of the group with the offsets (KIP-447),
so for them the second copy starts when the first one has ended.

Kafka Streams 3.9 with `exactly_once_v2` has passed its own system test (`StreamsEosTest`) in both coordination modes,
while an instance and two brokers were killed. franz-go has passed its own `TestTxnEtl`, and kafka-python its own tests
of transactional producers. They are not part of the suite.

{table}

{skipped}

## aiokafka can read a partition again after a coordinator has moved

aiokafka 0.14 asks for committed offsets with OffsetFetch 3, and does not read the error of the whole response. While a
new coordinator loads a group, or when the coordinator has moved, this error is the only one in the response. aiokafka
then takes the partition for one without a committed offset, and applies `auto_offset_reset`. With `earliest` it reads
from the start, and with `latest` it skips records. A copy job wrote 8,321 duplicates in this way. The same happens with
Apache Kafka.

To prevent this, set `auto_offset_reset="none"`, and give the group its first offsets before it starts:

```console
$ minikafka groups reset-offsets printers --topic orders --to-earliest --execute
```

If an offset could not be read, the consumer then raises `NoOffsetForPartitionError`: close it, and start another one.
An exactly-once copy should not use aiokafka, because aiokafka does not send the group's generation either.
`minikafka consume --group` reads the offsets itself, so it is not affected.

## kafka-python's own integration tests

On a [folder like a Kafka distribution](kafka-home.md#tests-of-kafka-python), 61 pass, 5 are skipped and 1 fails.

## Node.js

kafkajs uses Fetch 11. A client that knows topic ids, such as `@platformatic/kafka`, uses Fetch 13 to 17, which brokers
serve too. A test of the suite reads a topic in a group with version 1.35 of this client.
"""
